package sqldb

import (
	"errors"
	"slices"
	"strings"
)

// oneLine makes an error of several lines one of one line. pgx lists how each attempt
// to connect failed, the one with TLS first. The others say what is wrong: a server
// without TLS is harmless where TLS is not demanded.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
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

// refusedTLS is what pgx says of a server without TLS.
const refusedTLS = "server refused TLS connection"

// plainError is an error in other words.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }
