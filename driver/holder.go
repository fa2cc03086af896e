package driver

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Holder says who has or wants a lock, for people. Everybody who can read the
// store can read it. It identifies nobody to the store: that is [Owner].
type Holder struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note,omitempty"`
}

func (h Holder) String() string {
	var b strings.Builder
	if h.Program != "" {
		fmt.Fprintf(&b, "%s (pid %d)", h.Program, h.PID)
	} else {
		fmt.Fprintf(&b, "pid %d", h.PID)
	}
	if h.Host != "" {
		b.WriteString(" on " + h.Host)
	}
	if h.Note != "" {
		fmt.Fprintf(&b, ": %q", h.Note)
	}
	return b.String()
}

// Encode returns the holder as one line of JSON, the form in which stores keep it.
func (h Holder) Encode() string {
	b, _ := json.Marshal(h) // strings and an int: cannot fail
	return string(b)
}

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
