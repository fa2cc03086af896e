package dlock

import (
	"context"
	"errors"
	"fmt"
)

// Unlock gives the lock back. It works with a cancelled context, and may be called twice:
// the second call returns what the first did. If the store does not answer, Unlock takes
// up to twice Options.RequestTimeout; then the error wraps [ErrUnreachable], and the client
// goes on in the background until the lock expires or the client is closed. If the lock was
// lost before, or given back by [Client.Close], the error wraps [ErrNotHeld]: another holder
// may have had it meanwhile. An Unlock that hands the lock over to another caller of this
// client does not ask the store, and returns nil if the client has not noticed a loss.
func (l *Lease) Unlock(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background() // a panic would leave the lock held
	}
	l.unlock.Do(func() {
		if l.reentry != nil {
			l.reentry.end()
		}
		l.result = l.tenure.unlock(ctx)
	})
	return l.result
}

// unlock removes one lease of the tenure. The last one detaches the tenure from its grant, and the last
// tenure gives the lock up.
func (t *tenure) unlock(ctx context.Context) error {
	g, c := t.grant, t.grant.client
	c.calls.add()
	defer c.calls.end()
	if g.settings.mode.Shared {
		g.expireIfOverdue() // only the last tenure asks the store, which would report the loss
	}
	left := t.leave()
	switch {
	case left.idle && errors.Is(left.cause, ErrLost):
		t.releaseLost()
		return notHeld(g.name(), left.cause)
	case left.cause != nil || !left.last:
		return notHeld(g.name(), left.cause)
	}
	t.endContext(ErrReleased)
	var err error
	switch {
	case left.ended:
		err = g.release(ctx)
	case left.idle:
		err = g.handOverOrRelease(ctx)
	}
	notify(c.hooks.Released, Event{Name: g.name(), Token: t.token, Err: err})
	return err
}

// leaving is what a lease leaves behind.
type leaving struct {
	last  bool  // lease of the tenure
	idle  bool  // the grant has no other tenure
	ended bool  // the grant
	cause error // why the grant had ended before
}

// leave removes a lease. If no caller waits for the slot, the grant ends at once.
func (t *tenure) leave() (l leaving) {
	g := t.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	l.cause = g.cause
	t.entries--
	if l.last = t.entries == 0; !l.last {
		return l
	}
	if l.cause == nil {
		t.stage = unlocked
	}
	l.idle = g.detachLocked(t)
	if l.idle && l.cause == nil && g.slot != nil && !g.slot.Waited() {
		l.ended = true
		g.cause, g.ended = ErrReleased, g.client.clock.NoLaterThanNow()
	}
	return l
}

// notHeld returns the error of an Unlock of a tenure whose grant ended before with cause, or nil.
func notHeld(name string, cause error) error {
	switch {
	case errors.Is(cause, ErrLost): // it contains the name
		return fmt.Errorf("%w: %w", ErrNotHeld, cause)
	case errors.Is(cause, ErrClosed):
		return fmt.Errorf("%w: %q: %w", ErrNotHeld, name, cause)
	}
	return nil
}

// giveBack detaches a tenure that its call does not return. If it was the last one, its grant is released.
func (t *tenure) giveBack() {
	g := t.grant
	g.mu.Lock()
	cause := g.cause
	t.entries = 0
	if cause == nil {
		t.stage = unlocked
	}
	idle := g.detachLocked(t)
	g.mu.Unlock()
	switch {
	case idle && cause == nil:
		_ = g.handOverOrRelease(context.Background()) // the lock expires anyway
	case idle && errors.Is(cause, ErrLost):
		t.releaseLost()
	}
}
