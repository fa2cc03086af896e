package dlock

import (
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// The errors of this package, for use with errors.Is. What a store said itself
// is wrapped as well, and a wait that was cancelled wraps the context's cause.
var (
	// ErrHeld: somebody else has the lock. errors.As finds a [*HeldError] that
	// says who.
	ErrHeld = driver.ErrHeld
	// ErrNotHeld: there is nothing to unlock or to break, because the lock was
	// lost, or belongs to another holder.
	ErrNotHeld = driver.ErrNotHeld
	// ErrLost is the cause with which a lease's context ends when the lock is
	// not, or not certainly, ours any more.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause with which a lease's context ends when it is
	// unlocked.
	ErrReleased = errors.New("lock released")
	// ErrUnreachable: the store did not answer.
	ErrUnreachable = driver.ErrUnreachable
	// ErrDenied: the store refuses the user: a wrong password, or a right that is
	// missing.
	ErrDenied = driver.ErrDenied
	// ErrMisconfigured: the store answers, and cannot keep locks as it is: there is
	// no such database, the disk is full, the file is damaged.
	ErrMisconfigured = driver.ErrMisconfigured
	// ErrBadName: a name is 1 to 255 bytes of UTF-8 without control characters.
	ErrBadName = driver.ErrBadName
	// ErrBadTTL: the TTL is not positive, or outside what the store can do.
	ErrBadTTL = driver.ErrBadTTL
	// ErrUnsupported: this store cannot do that.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed: the client was closed.
	ErrClosed = driver.ErrClosed
)

// HeldError says who has a lock. It is [ErrHeld] to errors.Is.
type HeldError = driver.HeldError
