package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Lock acquires name, and waits while another holder has it. The context bounds the
// waiting, never the holding: the lease goes on when the context is cancelled. If
// the context ends first, the error wraps its cause, and a [*HeldError] that
// describes the holder. If a call to the store is unanswered at that time, it describes the
// last known holder, if that is recent. If it is not, the error wraps [ErrUnreachable] once the store
// has failed, or has not answered for a quarter of a second. Before that, the error says only that
// there is no answer yet.
//
// A context that comes from a lease of the same client and name re-enters: the
// lock is counted once more, without asking the store, and is free when every
// lease of it is unlocked. Goroutines that share such a context share the lock.
//
// If the store does not answer, the error wraps [ErrUnreachable]. Lock returns it
// after Options.RequestTimeout if the store never answered this call, otherwise
// after an outage of a TTL, or when the context ends. Lock undoes an attempt of unknown
// outcome in the background. Further calls for the same name wait for that, for a
// RequestTimeout at most. An attempt that cannot be undone expires.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, name, c.settings(opts))
}

// TryLock acquires name if it is free. If another holder has it, the error is a
// [*HeldError] that describes the holder. If the outcome of another attempt of this
// process is not known yet, TryLock waits for it until ctx ends, or for
// Options.RequestTimeout. After that time the error wraps [ErrUnreachable]. If this process
// has had the lock for its time slice, TryLock takes part in the pause that lets other
// processes have it, for a tenth of a second at most.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s := *c.settings(opts)
	s.wait = 0
	return c.lock(ctx, name, &s)
}

// Do calls fn while it holds name, and unlocks after fn has returned. The context
// of fn ends as ctx does, and with the cause [ErrLost] when the lock is lost. Do
// returns the error of fn. If fn succeeds, but the lock was lost or given back by
// [Client.Close] meanwhile, the error wraps [ErrNotHeld]. If only the unlocking
// fails, Do returns nil, so that no caller repeats fn: the lock is left to expire,
// and Hooks.Released gets the error.
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) (err error) {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	inner := newCheckedContext(ctx, lease)
	inner.caller = ctx
	defer func() { // also when fn panics
		_ = inner.held[0].Err() // reads the clock: the store may not answer
		inner.end(context.Canceled)
		if unlock := lease.Unlock(ctx); err == nil && errors.Is(unlock, ErrNotHeld) {
			err = unlock
		}
	}()
	if lease.reentry == nil { // else ctx leads to the tenure
		inner.Context = &leaseContext{inner.Context, lease.tenure}
	}
	return fn(inner)
}

func (c *Client) lock(ctx context.Context, name string, s *settings) (*Lease, error) {
	if err := c.beginCall(ctx, s, name); err != nil {
		return nil, err
	}
	defer c.calls.end()
	outer := c.innermost(ctx)
	if t := outer.find(name); t != nil {
		return t.reenter(ctx, s.mode)
	}
	var b bid
	initBid(&b, ctx, c, s, name, outer)
	panics := true
	defer func() {
		if panics { // in a hook
			b.unlock()
		}
	}()
	err := b.acquire()
	panics = false
	if err != nil {
		return nil, err
	}
	return &b.tenure.first, nil
}

// beginCall returns an error if the names or the settings are invalid, or ctx is done.
// Otherwise it counts the call, so that Close waits for it.
func (c *Client) beginCall(ctx context.Context, s *settings, names ...string) error {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	t := &c.traits
	switch {
	case s.ttl <= 0:
		return fmt.Errorf("%w: %v is not positive", ErrBadTTL, s.ttl)
	case s.ttl < t.MinTTL:
		return fmt.Errorf("%w: %v is less than the minimum of %s, %v", ErrBadTTL, s.ttl, t.Store, t.MinTTL)
	case s.ttl > t.LongestTTL():
		return fmt.Errorf("%w: %v is more than the maximum of %s, %v", ErrBadTTL, s.ttl, t.Store, t.LongestTTL())
	case len(s.note) > driver.MaxNoteBytes:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrBadNote, len(s.note), driver.MaxNoteBytes)
	case s.fair && !t.Fair:
		return c.unsupported("fair locks")
	case s.semaphore && s.mode.Limit <= 0:
		return fmt.Errorf("%w: %d is not positive", ErrBadLimit, s.mode.Limit)
	case s.semaphore && s.mode.Shared:
		return fmt.Errorf("%w: a permit of a semaphore cannot be shared", ErrBadLimit)
	case s.mode.Shared && !t.Shared:
		return c.unsupported("shared locks")
	case s.semaphore && !t.Limits:
		return c.unsupported("semaphores")
	case ctx.Err() != nil:
		quoted := fmt.Sprintf("%q", slices.Clone(names)) // the clone keeps names off the heap
		return fmt.Errorf("not locking %s: %w", strings.Trim(quoted, "[]"), context.Cause(ctx))
	}
	return c.calls.begin()
}

// acquire gets b a tenure. Every caller but a fair one enters the local queue, where it may get one;
// otherwise it asks the store.
func (b *bid) acquire() error {
	c := b.call.client
	defer b.call.stopWaiting()
	defer b.claim.unsubscribe()
	if b.call.settings.fair && !c.traits.Local {
		b.line = c.crowds.Join(b.claim.name)
		defer b.line.Leave()
	}
	for {
		err := b.acquireOnce()
		if err == nil {
			err = b.deliver()
		}
		if err != errEndedEarly { //nolint:errorlint // never wrapped
			return b.report(err)
		}
	}
}

func (b *bid) acquireOnce() error {
	if !b.call.settings.fair {
		if err := b.enter(); err != nil || b.tenure != nil {
			return err
		}
	}
	return b.attemptUntilGranted()
}

// attemptUntilGranted asks the store for the lock until the store grants it or the caller gives up.
func (b *bid) attemptUntilGranted() error {
	err := b.restOut()
	for err == nil {
		if err = b.attempt(); err == nil {
			return nil
		}
		err = b.beforeRetry(err)
	}
	b.abandon()
	return err
}
