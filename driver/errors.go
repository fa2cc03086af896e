package driver

import (
	"errors"
	"fmt"
	"time"
)

// The errors of the contract, for use with errors.Is. Package dlock exports
// them under the same names.
var (
	// ErrHeld: another owner has the lock. The error is always a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld: the owner that is renewed or released, or the token that is
	// broken, does not hold the lock.
	ErrNotHeld = errors.New("lock is not held")
	// ErrUnreachable: the store did not answer.
	ErrUnreachable = errors.New("store unreachable")
	// ErrDenied: the store rejects the user, because of a wrong password or a
	// missing right, and trying again does not help. A part of the call may have
	// happened: a user may have one right and lack another.
	ErrDenied = errors.New("permission denied")
	// ErrMisconfigured: the store answers, but cannot keep locks until an
	// administrator changes something: the database does not exist, the disk is
	// full, the file is damaged.
	ErrMisconfigured = errors.New("store cannot keep locks")
	// ErrBadName: the name breaks the rules of CheckName.
	ErrBadName = errors.New("bad lock name")
	// ErrBadTTL: the TTL is outside the limits of the store.
	ErrBadTTL = errors.New("bad TTL")
	// ErrMode: the name is in use with another limit, or as a lock instead of a semaphore or
	// the other way round. The error of a store is always a [*ModeError].
	ErrMode = errors.New("lock is in use in another mode")
	// ErrUnsupported: the store does not support the operation.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrClosed: the client or the store was closed. A call that was under way when
	// the store was closed may have happened.
	ErrClosed = errors.New("closed")
)

// Unchanged reports whether err proves that the call granted, renewed or ended no lock. The
// call may have taken or removed a place in a queue. An error is proof if it wraps [ErrHeld],
// [ErrNotHeld], [ErrMode], [ErrUnsupported], [ErrBadName] or [ErrBadTTL], or was marked with
// [NotSent]. In an error that joins those of several calls, only ErrHeld, ErrNotHeld and ErrMode
// are proof, because the others prove nothing about the other calls.
func Unchanged(err error) bool {
	proof := errors.Is(err, ErrHeld) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrMode)
	//nolint:errorlint // errors.Is would also find one of several errors that were joined
	for ; err != nil && !proof; err = errors.Unwrap(err) {
		_, unsent := err.(notSentError)
		proof = unsent || err == ErrUnsupported || err == ErrBadName || err == ErrBadTTL
	}
	return proof
}

// NotSent marks the error of a call that never left the process, because no connection
// could be made, or that was one transaction and never sent its commit. dlock then has nothing
// to undo, so that the next call need not wait. A store must not mark another call of several
// steps after its first step.
func NotSent(err error) error { return notSentError{err} }

type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// HeldError describes the holder of a lock. errors.Is reports that it is [ErrHeld].
type HeldError struct {
	Name      string        // never empty
	Token     uint64        // the holder's token; zero if unknown
	Mode      Mode          // of the holder, which may be one of several
	Holder    Holder        // zero if unknown
	Remaining time.Duration // until the lock expires unless renewed; zero if unknown
	Silent    bool          // this holder's release sends no notification: waiters have to poll
	Queued    bool          // fair waiters have places: see Request.Fair. False if the request was fair itself
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
