package dlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.tenure.grant.name() }

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
func (l *Lease) Token() uint64 { return l.tenure.token }

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
	ctx, _ := l.contextAndEnding()
	return ctx
}

// Remaining returns the time until the context is done if no further renewal
// succeeds. It is zero when the context is done.
func (l *Lease) Remaining() time.Duration {
	if l.tenure.endCause() != nil {
		return 0
	}
	g := l.tenure.grant
	return max(0, g.TrustDeadline()-g.client.clock.Now())
}

// Format prints the lease without its owner, for every verb.
func (l *Lease) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, fmt.Sprintf("lease of %q with token %d", l.Name(), l.Token()))
}

// Downgrade makes an exclusive lease a shared one in one atomic step: no other exclusive holder
// comes in between. Waiting shared callers are admitted. All leases that re-entered the lock
// are shared from then on. Token and context stay. A shared lease stays as it is. If Downgrade
// fails, the lease counts as shared, because the store may have changed it; Downgrade may be
// called again. If the lock was lost or unlocked, the error wraps [ErrNotHeld]; if ctx ended, it wraps
// the cause of ctx.
func (l *Lease) Downgrade(ctx context.Context) error {
	t, g := l.tenure, l.tenure.grant
	c := g.client
	downgrader, ok := c.store.(driver.Downgrader)
	if !ok || !c.traits.Shared || g.settings.mode.Limit > 0 {
		return c.unsupported("a downgrade")
	}
	g.expireIfOverdue()
	slot, cause := t.beginDowngrade()
	switch {
	case cause != nil:
		return fmt.Errorf("downgrading %q: %w: %w", g.name(), ErrNotHeld, cause)
	case g.settings.mode.Shared:
		return nil
	}
	if slot != nil {
		defer slot.Leave(true) // shared callers of this process ask the store: the grant is not shared among callers
	}
	err := c.callStore(ctx, func(ctx context.Context) error {
		err := downgrader.Downgrade(ctx, g.Grant)
		if errors.Is(err, ErrNotHeld) {
			g.lose(watchdog.ErrGone)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("downgrading %q: %w", g.name(), err)
	}
	return nil
}

// beginDowngrade makes the grant of a tenure that has not ended a shared one, and takes its slot, so that
// a concurrent Unlock does not hand it over. It returns why the tenure has ended, or nil.
func (t *tenure) beginDowngrade() (slot *slot, cause error) {
	g := t.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if cause = t.endCauseLocked(); cause != nil || g.settings.mode.Shared {
		return nil, cause
	}
	slot, g.slot = g.slot, nil
	g.downgraded = true
	return slot, nil
}
