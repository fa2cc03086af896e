package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// release releases a grant that has ended. If the store does not answer, the release goes on in the
// background.
func (g *grant) release(ctx context.Context) error {
	err := g.releaseOnce(ctx)
	if isFinal(err) {
		return explainRelease(g.name(), err)
	}
	c := g.client
	c.cleanups.Go(func() {
		if err := c.repeatRelease(g.Grant, g.Expiry(), err); err != nil {
			if c.calls.closed.Load() {
				c.unreleased.Add(1)
			}
			c.logger.Warn("dlock: a lock could not be released and is left to expire", "name", g.name(), "err", err)
		}
	})
	return fmt.Errorf("unlocking %q, which goes on in the background until the lock expires: %w", g.name(), err)
}

// explainRelease returns the error of a release that does not go on.
func explainRelease(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotHeld):
		return fmt.Errorf("%w: %q: %w: the store found no lock to release", ErrNotHeld, name, ErrLost)
	}
	return fmt.Errorf("unlocking %q, which is left to expire: %w", name, err)
}

// releaseOnce releases the lock for all contenders, and leaves the slot. It waits for the
// end of a renewal that is under way.
func (g *grant) releaseOnce(ctx context.Context) error {
	c := g.client
	until := g.ended + 2*c.requestTimeout
	if renewal := c.watchdog.Forget(&g.Hold); renewal != nil {
		select {
		case <-renewal:
		case <-time.After(c.requestTimeout):
		}
		until = max(until, c.clock.NoLaterThanNow()+c.requestTimeout)
	}
	attempts, err := c.releaseGrant(ctx, g.Grant, until)
	if errors.Is(err, ErrNotHeld) && attempts > 1 && c.clock.Now() < g.TrustDeadline() {
		err = nil // a call without an answer has released the lock
	}
	now := g.ended // a local store takes no time
	if !c.traits.Local {
		now = c.clock.NoLaterThanNow()
	}
	if slot := g.slot; slot != nil {
		slot.State.Released(now)
		c.noteUnanswered(slot, err)
		slot.Leave(!errors.Is(err, ErrUnreachable))
	} else if g.settings.mode.Limit > 0 { // the next caller has to know that its time slice goes on
		c.queue.UpdateFree(g.name(), func(state *queueState) { state.Released(now) })
	}
	return err
}

// releaseLost releases in the background a grant that was lost, when its last tenure is detached. The store
// may still count it as held, and contenders need not wait until it expires. If the store does not,
// because the lock was broken, it may still get an attempt whose answer was lost, and undoes only attempts
// of owners that have released.
func (t *tenure) releaseLost() {
	if c := t.grant.client; !c.calls.closed.Load() {
		c.releaseInBackground(t.grant.Grant, 2*c.requestTimeout)
	}
}

// releaseInBackground releases a grant that expires otherwise, within limit.
func (c *Client) releaseInBackground(grant driver.Grant, limit time.Duration) {
	c.cleanups.Go(func() { _, _ = c.releaseGrant(context.Background(), grant, c.clock.NoLaterThanNow()+limit) })
}

// noteUnanswered records in slot, for its next occupant, whether the store did not answer.
func (c *Client) noteUnanswered(slot *slot, err error) {
	if errors.Is(err, ErrUnreachable) {
		slot.State.Unanswered(c.clock.NoLaterThanNow(), err)
		slot.ForgetPrevious()
	}
}

const (
	releaseAttempts = 3
	minReleaseDelay = 10 * time.Millisecond
	maxReleaseDelay = 100 * time.Millisecond
	// maxRepeatDelay is the longest pause between two calls of repeatRelease. Thousands of locks
	// may have to be released in the same outage.
	maxRepeatDelay = 2 * time.Second
)

// releaseGrant asks the store to release grant, and again while that may help. It returns how
// often it asked. It works with a cancelled context. It returns no later than until, which is at least
// a RequestTimeout away.
func (c *Client) releaseGrant(ctx context.Context, grant driver.Grant, until clock.Instant) (attempts int, err error) {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	left := c.requestTimeout
	delay := backoff.Backoff{Min: minReleaseDelay, Max: maxReleaseDelay}
	for {
		attempts++
		if err = c.callRelease(ctx, grant, left); isFinal(err) {
			return attempts, err
		}
		pause := delay.Next()
		left = until - c.clock.Now() - pause
		if attempts == releaseAttempts || left <= 0 {
			return attempts, err
		}
		<-time.After(pause)
	}
}

// repeatRelease goes on with a release that has failed with err, until the store has answered. It gives up
// at until, when the lock expires by itself, and when Close has used its time.
func (c *Client) repeatRelease(grant driver.Grant, until clock.Instant, err error) error {
	closing := c.calls.closing
	delay := backoff.Backoff{Min: maxReleaseDelay, Max: maxRepeatDelay}
	for {
		select {
		case <-time.After(min(delay.Next(), until-c.clock.Now())):
		case <-closing:
			closing, until = nil, min(until, c.closeBy)
		}
		left := until - c.clock.Now()
		if left <= 0 {
			return err
		}
		if err = c.callRelease(context.Background(), grant, left); isFinal(err) {
			if errors.Is(err, ErrNotHeld) { // a call without an answer has released the lock
				return nil
			}
			return err
		}
	}
}

func (c *Client) callRelease(ctx context.Context, grant driver.Grant, limit time.Duration) error {
	limited, timer := c.withTimeout(ctx, min(c.requestTimeout, limit))
	defer timer.End()
	return c.explain(ctx, limited, c.store.Release(limited, grant))
}

// isFinal reports whether a release that ended with err need not be repeated.
func isFinal(err error) bool {
	return err == nil || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrDenied) || errors.Is(err, ErrClosed)
}
