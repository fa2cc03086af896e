package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock/driver"
)

// harmless returns text as it may be shown on a terminal: unchanged if it is a
// plain word, otherwise quoted with everything escaped that is not visible.
// Names and notes come from strangers; they must neither steer the terminal
// nor look like something else.
func harmless(text string) string {
	plain := text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool {
		return c == '"' || c == '\\' || c == ' ' || !unicode.IsPrint(c)
	})
	if plain {
		return text
	}
	return strconv.Quote(text)
}

// harmlessLines escapes what is not visible, but keeps line ends and the rest
// of the text as it is.
func harmlessLines(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case c == '\n' || c == '\t' || (unicode.IsPrint(c) && !(c == utf8.RuneError && size == 1)):
			b.WriteString(text[i : i+size])
		default:
			quoted := strconv.Quote(text[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// harmlessHolder is holder.String with every part made harmless.
func harmlessHolder(h driver.Holder) string {
	if h == (driver.Holder{}) {
		return "somebody unknown"
	}
	var b strings.Builder
	if h.Program != "" {
		fmt.Fprintf(&b, "%s (pid %d)", harmless(h.Program), h.PID)
	} else {
		fmt.Fprintf(&b, "pid %d", h.PID)
	}
	if h.Host != "" {
		b.WriteString(" on " + harmless(h.Host))
	}
	if h.Note != "" {
		b.WriteString(": " + strconv.Quote(h.Note))
	}
	return b.String()
}

// lockJSON is one lock in the output of ls --json and show --json.
type lockJSON struct {
	Name        string     `json:"name"`
	Token       uint64     `json:"token"`
	Holder      holderJSON `json:"holder"`
	Since       *time.Time `json:"since"` // null if the store does not know
	RemainingMS int64      `json:"remaining_ms"`
	Waiters     int        `json:"waiters"`
}

// holderJSON has all fields always, so that scripts need not ask.
type holderJSON struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note"`
}

func describeLock(info driver.Info) lockJSON {
	lock := lockJSON{
		Name:        info.Name,
		Token:       info.Token,
		Holder:      holderJSON(info.Holder),
		RemainingMS: info.Remaining.Milliseconds(),
		Waiters:     info.Waiters,
	}
	if !info.Since.IsZero() {
		since := info.Since.UTC()
		lock.Since = &since
	}
	return lock
}

// printJSON writes value as one line. encoding/json escapes control
// characters, so that the line is one, whatever is in it.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return outputFailed(encoder.Encode(value))
}

// outputFailed marks an error of writing to stdout as not the store's fault.
func outputFailed(err error) error {
	if err == nil {
		return nil
	}
	return failf(exitNo, "cannot write the output: %w", err)
}

// sinceText shows a time of today as a time of day.
func sinceText(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	since = since.Local()
	if y, m, d := since.Date(); now.Year() == y && now.Month() == m && now.Day() == d {
		return since.Format("15:04:05")
	}
	return since.Format("2006-01-02 15:04:05")
}

// remainingText rounds to what people want to know.
func remainingText(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// useColour decides by the rules of no-color.org.
func useColour(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// style is how a text is shown where there are colours.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// painter applies styles, or does not.
type painter bool

func painterFor(out *os.File) painter { return painter(useColour(isTerminal(out), os.Getenv)) }

func (p painter) paint(s style, text string) string {
	if !p || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
