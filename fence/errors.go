package fence

import (
	"errors"
	"fmt"
)

// The errors of this package, for use with errors.Is. What the database said is
// wrapped as well.
var (
	// ErrStale: the row has been written with a larger token. errors.As finds a
	// [*StaleError] that says with which one.
	ErrStale = errors.New("another holder has had the lock since")
	// ErrNoRow: there is no row with that key.
	ErrNoRow = errors.New("no such row")
	// ErrBadName: the name of a table or of a column is none.
	ErrBadName = errors.New("bad name")
)

// StaleError says which token a row has refused. It is [ErrStale] to errors.Is.
type StaleError struct {
	Token uint64 // that was refused
	Seen  uint64 // that the row has seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d was refused after token %d", ErrStale, e.Token, e.Seen)
}

// Unwrap makes it ErrStale to errors.Is.
func (e *StaleError) Unwrap() error { return ErrStale }
