package dlock

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// Lease is a lock that is held. It is safe for concurrent use. Every Lock that
// succeeds returns its own, also when it re-entered.
type Lease struct {
	hold   *hold
	again  *reentry // nil for the first lease of a hold
	unlock sync.Once
	result error // of the unlock
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.hold.name }

// Token returns the fencing token: a number larger than that of every earlier
// acquisition of the name. A resource that remembers the largest token it has
// seen and refuses smaller ones is safe from a holder that does not know yet
// that it lost the lock; nothing else is. How far the order can be trusted
// depends on the store: see Traits.
func (l *Lease) Token() uint64 { return l.hold.Grant.Token }

// Context returns a context that is done with the cause [ErrLost] before the lease
// is over, which is decided here and in time, even if the store cannot be reached,
// or when a renewal finds that the lock is gone; and with [ErrReleased] when it was
// unlocked: that of a lease that re-entered with its own Unlock, the first one's with
// the last. It has the values of the context that was given to Lock, but neither its
// deadline nor its cancellation.
//
// Its Err looks at the clock, so that a program that was stopped for longer
// than the lease lasts finds out before it does anything else. A context that
// is derived from it does not: it ends a moment later, when the watchdog has run.
func (l *Lease) Context() context.Context {
	if l.again != nil {
		return l.again.context(l.hold)
	}
	return l.hold.context()
}

// Remaining returns for how long the lease will be believed in if no renewal
// succeeds any more: the time after which its context is done. It is zero when
// the context is done.
func (l *Lease) Remaining() time.Duration {
	if l.hold.over() != nil {
		return 0
	}
	return max(0, l.hold.TrustDeadline()-l.hold.client.clock.Now())
}

// Unlock gives the lock back. It works with a cancelled context, takes bounded
// time, and may be called twice: the second call returns what the first did. If the
// lock was lost before, or given back by [Client.Close], the error wraps [ErrNotHeld]:
// another holder may have had it meanwhile. If the store cannot be reached, the error
// wraps [ErrUnreachable], and the lock expires by itself.
func (l *Lease) Unlock(ctx context.Context) error {
	l.unlock.Do(func() {
		if l.again != nil {
			l.again.end()
		}
		l.result = l.hold.unlock(ctx)
	})
	return l.result
}

// Format prints the lease without the owner that is in it, whatever the verb.
func (l *Lease) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, fmt.Sprintf("lease of %q with token %d", l.Name(), l.Token()))
}
