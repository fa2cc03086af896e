package driver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// MaxNoteBytes is the length of the longest note that a call can give its lock.
const MaxNoteBytes = 1000

// Holder describes a process that has or wants a lock, for people. Every user of
// the store can read it. The store identifies a grant by its [Owner], not
// by its Holder.
type Holder struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note,omitempty"`
}

// String returns the holder on one line, without control sequences for a terminal. It cuts
// texts longer than MaxNoteBytes.
func (h Holder) String() string {
	var b strings.Builder
	switch {
	case h.Program != "":
		fmt.Fprintf(&b, "%s (pid %d)", printable(h.Program), h.PID)
	case h.PID != 0:
		fmt.Fprintf(&b, "pid %d", h.PID)
	default:
		b.WriteString("another program")
	}
	if h.Host != "" {
		b.WriteString(" on " + printable(h.Host))
	}
	if h.Note != "" {
		fmt.Fprintf(&b, ": %q", short(h.Note))
	}
	return b.String()
}

// printable quotes text with control characters: any program may have written it.
func printable(s string) string {
	s = short(s)
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	return s
}

// short cuts a long text, which another program may have written.
func short(s string) string {
	if len(s) <= MaxNoteBytes {
		return s
	}
	end := MaxNoteBytes
	for end > MaxNoteBytes-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Encode returns the holder as one line of JSON, as stores keep it.
func (h Holder) Encode() string {
	if last := lastEncoded.Load(); last != nil && last.holder == h {
		return last.text
	}
	b, _ := json.Marshal(h) // strings and an int: cannot fail
	text := string(b)
	lastEncoded.Store(&encoded{h, text})
	return text
}

type encoded struct {
	holder Holder
	text   string
}

// lastEncoded caches the last call of Encode: most processes use one holder.
var lastEncoded atomic.Pointer[encoded]

// DecodeHolder reads what Encode wrote. Any other text was written by another
// program and becomes the note.
func DecodeHolder(text string) Holder {
	var h Holder
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return Holder{Note: text}
	}
	return h
}
