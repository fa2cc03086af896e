package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// Lock acquires name and waits as long as somebody else has it. The context
// bounds the waiting, never the holding: the lease goes on when it is cancelled.
// A wait that is cancelled returns an error that wraps the context's cause, and
// a [*HeldError] that says who had the lock.
//
// A context that comes from a lease of the same client and name re-enters: the
// lock is counted once more, without asking the store, and is free when every
// lease of it is unlocked. Goroutines that share such a context share the lock.
//
// If the store does not answer, the error wraps [ErrUnreachable]: after
// Options.RequestTimeout if it never answered this wait, or when it was silent for
// a TTL. An attempt that may have succeeded unseen is undone in the background, and
// otherwise expires. Calls of the same name that come meanwhile wait for that, for a
// RequestTimeout at most.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s := c.settings(opts)
	return c.lock(ctx, name, &s)
}

// TryLock acquires name if it is free. If another holder has it, the error is a
// [*HeldError], which says who. If the outcome of another attempt of this process
// is not known yet, TryLock waits for it, until ctx ends or for
// Options.RequestTimeout; then the error wraps [ErrUnreachable].
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s := c.settings(opts)
	s.limited, s.wait = true, 0
	return c.lock(ctx, name, &s)
}

// Do calls fn while holding name, and unlocks after fn has returned. The context
// of fn ends when the lock is lost, with the cause [ErrLost], and when ctx does.
// Do returns the error of fn. If fn succeeds, but the lock was lost meanwhile or given
// back by [Client.Close], the error wraps [ErrNotHeld].
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) (err error) {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(lease.Context())
	held := &doContext{inner, lease.Context()}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() { // also when fn panics
		stop()
		cancel(nil)
		if unlock := lease.Unlock(ctx); err == nil {
			err = unlock
		}
	}()
	return fn(held)
}

func (c *Client) settings(opts []Option) settings {
	s := settings{ttl: c.ttl, margin: -1}
	if len(opts) > 0 {
		s = s.with(opts)
	}
	return s
}

// with is not inlined because options move the settings to the heap, which
// calls without options need not pay for.
//
//go:noinline
func (s settings) with(opts []Option) settings {
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// check refuses what no store should see.
func (c *Client) check(s *settings) error {
	t := &c.traits
	switch {
	case s.ttl <= 0:
		return fmt.Errorf("%w: %v is not positive", ErrBadTTL, s.ttl)
	case s.ttl < t.MinTTL:
		return fmt.Errorf("%w: %v is below the %v that %s can do", ErrBadTTL, s.ttl, t.MinTTL, t.Store)
	case s.ttl > t.LongestTTL():
		return fmt.Errorf("%w: %v is above the %v that %s can do", ErrBadTTL, s.ttl, t.LongestTTL(), t.Store)
	case s.fair && !t.Fair:
		return fmt.Errorf("%w: fair locks on %s", ErrUnsupported, t.Store)
	}
	return nil
}

func (c *Client) lock(ctx context.Context, name string, s *settings) (*Lease, error) {
	if err := c.life.begin(); err != nil {
		return nil, err
	}
	defer c.life.end()
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if err := c.check(s); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not locking %q: %w", name, context.Cause(ctx))
	}
	outer := c.innermost(ctx)
	if h := outer.find(name); h != nil {
		return h.reenter(ctx)
	}
	h := c.newHold(ctx, name, s, outer)
	returned := false
	defer func() {
		if !returned { // a hook panicked
			unlockBegun([]*hold{h})
		}
	}()
	err := h.acquire(ctx)
	returned = true
	if err != nil {
		return nil, err
	}
	return &h.first, nil
}

// unlockBegun unlocks those of holds that were acquired.
func unlockBegun(holds []*hold) {
	for _, h := range holds {
		if h.TrustDeadline() != 0 {
			_ = h.first.Unlock(context.Background()) // the panic goes on, and is the one to tell
		}
	}
}

// acquire takes the lock for h: first the slot, then the store.
func (h *hold) acquire(ctx context.Context) error {
	w := wait{client: h.client, ctx: ctx, hold: h}
	defer w.stop()
	if !h.settings.fair {
		h.alone = true
		if err := w.enter(); err != nil {
			return w.ended(err)
		}
	}
	for {
		sent, err := h.attempt(w.ctx)
		if err == nil {
			err = h.begin(sent)
		}
		if err == nil {
			return w.ended(nil)
		}
		if giveUp := w.after(err); giveUp != nil {
			h.abandon(err)
			return w.ended(giveUp)
		}
	}
}

// attempt asks the store once, and returns when it did, unless the one before has
// handed the lock on.
func (h *hold) attempt(ctx context.Context) (sent clock.Instant, err error) {
	if p := h.takePassed(); p != nil {
		return p.sent, h.granted(p.grant, p.sent)
	}
	c := h.client
	req := h.attemptRequest()
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	sent = c.clock.NoLaterThanNow()
	grant, err := c.store.Acquire(bounded, req)
	if err != nil {
		h.noteOutcome(err)
		return sent, c.explain(ctx, bounded, err)
	}
	return sent, h.granted(grant, sent)
}

// noteOutcome remembers whether an attempt may have been, or may still be, carried
// out although it failed.
func (h *hold) noteOutcome(err error) {
	if !errors.Is(err, ErrHeld) {
		h.unknown = true
	}
}

// granted takes the grant of an attempt that was sent for at that instant. One
// that came too late to be believed in is none.
func (h *hold) granted(grant driver.Grant, sent clock.Instant) error {
	h.Grant = grant
	if margin := h.settings.margin; margin < 0 {
		h.Margin = watchdog.DefaultMargin(grant.TTL)
	} else {
		h.Margin = watchdog.LimitMargin(grant.TTL, margin)
	}
	c := h.client
	h.unknown = true // until it begins
	if !c.traits.Local && c.clock.Now() >= sent+grant.TTL-h.Margin {
		return fmt.Errorf("%w: the answer took longer than the lease lasts", ErrUnreachable)
	}
	if c.traits.ReportsLoss && h.lostAlready() {
		return fmt.Errorf("%w: %w before it was had", ErrUnreachable, errReported)
	}
	return nil
}

// lostAlready says whether the last attempt's grant was reported lost.
func (h *hold) lostAlready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reported
}

// begin starts the lease. It fails only for good: the hold cannot begin again.
func (h *hold) begin(sent clock.Instant) error {
	c := h.client
	if slot := h.slot.Load(); slot != nil {
		slot.State.Taken(sent, &c.slices)
	}
	c.dog.Watch(&h.Lease, sent)
	h.outcome.decided()
	if c.life.ended.Load() {
		if h.end(ErrClosed) {
			_ = h.give(context.Background()) // it expires anyway
		}
		return ErrClosed
	}
	if c.traits.ReportsLoss {
		return h.beginReported()
	}
	return nil
}

// beginReported looks for a loss that was reported before there was a lease.
func (h *hold) beginReported() error {
	h.mu.Lock()
	h.begun = true
	reported := h.reported
	h.mu.Unlock()
	if !reported {
		return nil
	}
	h.client.dog.Forget(&h.Lease)
	h.end(fmt.Errorf("%w: %w", ErrLost, errReported))
	return h.over()
}

// abandon undoes attempts whose outcome is unknown, and gives up a place in a
// queue. The next caller of this process comes after that, so that it does not find
// the lock held by this process's own abandoned attempt.
func (h *hold) abandon(err error) {
	if errors.Is(h.over(), ErrClosed) {
		return // it had begun: who ended it gives it back
	}
	c := h.client
	if !h.queues() && !h.unknown && errors.Is(err, ErrHeld) {
		h.leave()
		return
	}
	c.cleanups.Go(func() {
		defer h.leave()
		grant := h.Grant
		grant.Token = 0
		err := c.release(context.Background(), grant, never, c.limit)
		undone := err == nil || errors.Is(err, ErrNotHeld)
		if !undone {
			c.logger.Warn("dlock: an attempt could not be undone and is left to expire",
				"name", grant.Name, "ttl", h.settings.ttl, "err", err)
		}
		// That it could not be undone is no reason for the next caller to give up: it
		// finds out by itself whether the store answers.
		if slot := h.slot.Load(); slot != nil && undone {
			slot.State.Answered()
		}
	})
}

// ended reports the end of a wait, if there was one, and what was acquired.
func (w *wait) ended(err error) error {
	c := w.client
	event := Event{Name: w.hold.name, Token: w.hold.Grant.Token, Err: err}
	if w.began {
		event.Waited = c.clock.NoLaterThanNow() - w.since
		call(c.hooks.Waited, event)
	}
	if err == nil {
		call(c.hooks.Acquired, event)
	}
	return err
}

const never = time.Duration(1<<63 - 1)
