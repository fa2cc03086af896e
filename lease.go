package dlock

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// Lease is a lock that is held. It is safe for concurrent use. Every successful Lock
// returns its own Lease, also when it re-enters.
type Lease struct {
	hold    *hold
	reentry *reentry // nil for the first lease of a hold
	unlock  sync.Once
	result  error // of unlock
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.hold.name }

// Token returns the fencing token: a number larger than that of every earlier
// acquisition of the name. A resource that remembers the largest token it has
// seen and rejects smaller ones is safe from a holder that does not know yet
// that it lost the lock. No other resource is. How far the order can be trusted
// depends on the store: see Traits. A token may need 63 bits: a floating-point number
// cannot keep it.
//
// Shared leases, and permits of a semaphore, exist at the same time, so the order of their
// tokens says nothing about them. It holds against exclusive leases: a shared lease has a
// larger token than every exclusive lease before it and a smaller one than every exclusive
// lease after it.
func (l *Lease) Token() uint64 { return l.hold.token }

// Context returns a context that is done, with the cause [ErrLost], before the store
// may grant the lock to another owner. The client decides that by its own clock, so it
// needs no answer of the store. It also ends the context when it learns from the store that
// the lock is gone. (A lock that is bound to a connection may be granted to another owner
// before: see package sqlsession.) The context is done with the cause [ErrReleased] when the lease is
// unlocked; the context of the first lease goes on until the last lease of the lock is
// unlocked. It has the values of the context that was given to Lock, but neither its
// deadline nor its cancellation.
//
// Its Err reads the clock, so that a program that was stopped for longer than the lease
// lasts finds out before it does anything else. A context made of it with package
// context does not: it ends a moment later, when the watchdog has run.
func (l *Lease) Context() context.Context {
	if l.reentry != nil {
		return l.reentry.context(l.hold)
	}
	return l.hold.context()
}

// Remaining returns the time until the context is done if no further renewal
// succeeds. It is zero when the context is done.
func (l *Lease) Remaining() time.Duration {
	if l.hold.endCause() != nil {
		return 0
	}
	return max(0, l.hold.leaderOrSelf().TrustDeadline()-l.hold.client.clock.Now())
}

// Format prints the lease without its owner, for every verb.
func (l *Lease) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, fmt.Sprintf("lease of %q with token %d", l.Name(), l.Token()))
}
