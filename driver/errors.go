package driver

import (
	"errors"
	"fmt"
	"time"
)

// The errors of the contract, for use with errors.Is. Package dlock exports
// them under the same names.
var (
	// ErrHeld: somebody else has the lock. Always a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld: the lock does not belong to the one who wants to renew,
	// release or break it.
	ErrNotHeld = errors.New("lock is not held")
	// ErrUnreachable: the store did not answer, so the outcome is unknown.
	ErrUnreachable = errors.New("store unreachable")
	// ErrDenied: the store refuses the user: a wrong password, or a right that is
	// missing. Nothing happened, and trying again changes nothing.
	ErrDenied = errors.New("permission denied")
	// ErrMisconfigured: the store answers, and cannot keep locks as it is: there is
	// no such database, the disk is full, the file is damaged. An administrator has
	// to change something.
	ErrMisconfigured = errors.New("store cannot keep locks")
	// ErrBadName: the name breaks the rules of CheckName.
	ErrBadName = errors.New("bad lock name")
	// ErrBadTTL: the TTL is outside what the store can do.
	ErrBadTTL = errors.New("bad TTL")
	// ErrUnsupported: this store cannot do that.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrClosed: the client or the store was closed.
	ErrClosed = errors.New("closed")
)

// HeldError says who has the lock. It is [ErrHeld] to errors.Is.
type HeldError struct {
	Name      string        // never empty
	Token     uint64        // the holder's token; zero if unknown
	Holder    Holder        // zero if unknown
	Remaining time.Duration // until the lock expires unless renewed; zero if unknown
	Silent    bool          // nobody is woken when this holder releases it: a Watcher's waiters poll
}

func (e *HeldError) Error() string {
	by := ""
	if e.Holder != (Holder{}) {
		by = " by " + e.Holder.String()
	}
	return fmt.Sprintf("%q is held%s", e.Name, by)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
