// Package terminal writes text for people: escaped, coloured, and aligned in tables.
package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrOutput is wrapped by every error of writing the output of a command.
var ErrOutput = errors.New("cannot write the output")

// Print writes text to w. Its error wraps ErrOutput.
func Print(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return OutputError(err)
}

// PrintJSON writes value to w as one line. It escapes what is invisible, in strings of other users too, which a
// terminal or a reader could take for something else; the values stay the same.
func PrintJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return OutputError(err)
	}
	var b strings.Builder
	for _, c := range strings.TrimSuffix(text.String(), "\n") { // invisible runes are only in strings
		switch high, low := utf16.EncodeRune(c); {
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return Print(w, b.String()+"\n")
}

// OutputError wraps an error of writing the output in ErrOutput. It returns nil for nil.
func OutputError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOutput, err)
}

// Quote returns a plain word unchanged and quotes other text. Names and notes come from other
// users: they must neither control the terminal nor look like other text.
func Quote(text string) string {
	plain := text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool {
		return c == '"' || c == '\\' || c == ' ' || !unicode.IsPrint(c)
	})
	if plain {
		return text
	}
	return strconv.Quote(text)
}

// Escape escapes the invisible characters of text, except for line ends and tabs.
func Escape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		invalid := c == utf8.RuneError && size == 1
		if c == '\n' || c == '\t' || (unicode.IsPrint(c) && !invalid) {
			b.WriteString(text[i : i+size])
		} else {
			b.WriteString(strings.Trim(strconv.Quote(text[i:i+size]), `"`))
		}
		i += size
	}
	return b.String()
}

// Style is how a text is shown where colours are possible.
type Style string

// The styles, as parameters of the escape sequence.
const (
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Painter applies styles if it is true.
type Painter bool

// PainterFor returns the painter for a file.
func PainterFor(out *os.File) Painter { return Painter(useColour(Is(out), os.Getenv)) }

// useColour decides by the rules of no-color.org.
func useColour(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Paint returns text in a style.
func (p Painter) Paint(s Style, text string) string {
	if !p || s == "" || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
