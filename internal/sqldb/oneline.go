package sqldb

import (
	"errors"
	"slices"
	"strings"
)

// oneLine joins the lines of an error. pgx lists how each attempt to connect failed, with
// TLS first. If TLS is not demanded, its refusal is harmless, and oneLine leaves it out.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	several, ok := errors.AsType[joinedError](err)
	if !ok {
		return &plainError{strings.Join(strings.Fields(err.Error()), " "), err}
	}
	var all, telling []string
	for _, one := range several.Unwrap() {
		text := strings.Join(strings.Fields(one.Error()), " ")
		if !slices.Contains(all, text) {
			all = append(all, text)
			if !strings.Contains(text, refusedTLS) {
				telling = append(telling, text)
			}
		}
	}
	if len(telling) == 0 {
		telling = all
	}
	return &plainError{strings.Join(telling, "; "), err}
}

// joinedError wraps several errors.
type joinedError interface {
	error
	Unwrap() []error
}

// refusedTLS is the text of pgx for a server without TLS.
const refusedTLS = "server refused TLS connection"

// plainError is an error in other words.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }
