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

// Holder says who has or wants a lock, for people. Everybody who can read the
// store can read it. It identifies nobody to the store: that is [Owner].
type Holder struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note,omitempty"`
}

// String returns the holder on one line, with nothing in it that a terminal
// would obey.
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
		fmt.Fprintf(&b, ": %q", h.Note)
	}
	return b.String()
}

// printable quotes what is not a plain word: anybody may have written it.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	return s
}

// Encode returns the holder as one line of JSON, the form in which stores keep it.
func (h Holder) Encode() string {
	if last := lastEncoded.Load(); last != nil && last.holder == h {
		return last.text
	}
	b, _ := json.Marshal(h) // strings and an int: cannot fail
	text := string(b)
	lastEncoded.Store(&encoded{h, text})
	return text
}

// encoded is what Encode returned for a holder.
type encoded struct {
	holder Holder
	text   string
}

// lastEncoded is the last of them: most of the time a process asks as the same one.
var lastEncoded atomic.Pointer[encoded]

// DecodeHolder reads what Encode wrote. Text from elsewhere becomes the note,
// since another program's holder is better shown raw than hidden.
func DecodeHolder(text string) Holder {
	var h Holder
	if text == "" {
		return h
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return Holder{Note: text}
	}
	return h
}
