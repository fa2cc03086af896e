package fence

import (
	"errors"
	"fmt"
)

// The errors of this package, for use with errors.Is. They also wrap the error of the
// database.
var (
	// ErrStale: the row has been written with a larger token. The error is a [*StaleError],
	// which has that token.
	ErrStale = errors.New("another holder has had the lock since")
	// ErrNoRow: there is no row with that key.
	ErrNoRow = errors.New("no such row")
	// ErrBadName: the name of a table or of a column is not allowed.
	ErrBadName = errors.New("bad name")
)

// StaleError describes a token that a row rejected. errors.Is reports that it is [ErrStale].
type StaleError struct {
	Token uint64 // the rejected one
	Seen  uint64 // the largest one that wrote the row
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d was rejected after token %d", ErrStale, e.Token, e.Seen)
}

// Unwrap makes it ErrStale to errors.Is.
func (e *StaleError) Unwrap() error { return ErrStale }
