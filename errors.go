package dlock

import (
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// The errors of this package, for use with errors.Is. They also wrap the store's own
// error, and the error of a cancelled wait wraps the context's cause.
var (
	// ErrHeld: another holder has the lock. errors.As finds a [*HeldError] that
	// describes the holder.
	ErrHeld = driver.ErrHeld
	// ErrNotHeld: the lock cannot be unlocked or broken, because it was lost or
	// belongs to another holder.
	ErrNotHeld = driver.ErrNotHeld
	// ErrLost is the cause with which a lease's context ends when the lock is not
	// certainly held any more. The cause also wraps why the last renewal failed.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause with which a lease's context ends when the lease is
	// unlocked.
	ErrReleased = errors.New("lock released")
	// ErrUnreachable: the store did not answer. [Client.Lock] says when a wait that ends
	// while a call to the store is unanswered returns it.
	ErrUnreachable = driver.ErrUnreachable
	// ErrDenied: the store rejects the user, because of a wrong password or a missing
	// right.
	ErrDenied = driver.ErrDenied
	// ErrMisconfigured: the store answers, but cannot keep locks: the database does not
	// exist, the disk is full, the file is damaged.
	ErrMisconfigured = driver.ErrMisconfigured
	// ErrBadName: a name is 1 to 255 bytes of UTF-8 without control characters.
	ErrBadName = driver.ErrBadName
	// ErrBadTTL: the TTL is not positive, or outside the limits of the store.
	ErrBadTTL = driver.ErrBadTTL
	// ErrMode: the name is in use in another mode than the call asks for: as a semaphore
	// with another limit, as a lock and not as a semaphore, or shared by the caller itself,
	// which wants it exclusively.
	ErrMode = driver.ErrMode
	// ErrBadLimit: the limit of a semaphore is not positive, or its permit should be shared.
	ErrBadLimit = errors.New("bad limit")
	// ErrBadNote: the note is longer than [driver.MaxNoteBytes].
	ErrBadNote = errors.New("bad note")
	// ErrUnsupported: the store does not support the operation.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed: the client was closed.
	ErrClosed = driver.ErrClosed
)

// HeldError describes the holder of a lock. errors.Is reports that it is [ErrHeld].
type HeldError = driver.HeldError
