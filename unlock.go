package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// unlock takes one lease off the hold, and gives the lock back with the last.
func (h *hold) unlock(ctx context.Context) error {
	c := h.client
	c.life.enter()
	defer c.life.end()
	h.mu.Lock()
	h.count--
	last := h.count == 0
	ends := last && h.endLocked(ErrReleased)
	h.mu.Unlock()
	if ends {
		h.cancelContext(ErrReleased)
		return h.give(ctx)
	}
	if last && !c.life.ended.Load() && !errors.Is(h.over(), watchdog.ErrNotHeld) {
		h.giveLate()
	}
	return h.unlockError()
}

// unlockError is what Unlock returns for a hold that it did not end itself.
func (h *hold) unlockError() error {
	if cause := h.over(); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) {
		return fmt.Errorf("%w: %q: %w", ErrNotHeld, h.name, cause)
	}
	return nil
}

// give gives the lock of a hold that has just ended back to the store. Its
// renewal is over before the release is sent.
func (h *hold) give(ctx context.Context) error {
	c := h.client
	if renewal := c.dog.Forget(&h.Lease); renewal != nil {
		select {
		case <-renewal:
		case <-time.After(c.limit):
		}
	}
	err := h.giveToNext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrNotHeld):
		h.mu.Lock()
		h.cause = fmt.Errorf("%w: found when it was unlocked", ErrLost)
		h.mu.Unlock()
		err = h.unlockError()
	default:
		err = fmt.Errorf("unlocking %q, which is left to expire: %w", h.name, err)
	}
	call(c.hooks.Released, Event{Name: h.name, Token: h.Grant.Token, Err: err})
	return err
}

// giveLate gives back a lock that was lost here, since the store may still think
// that it is held, and others need not wait until it does not.
func (h *hold) giveLate() {
	c := h.client
	c.cleanups.Go(func() {
		_ = c.release(context.Background(), h.Grant, 0, 2*c.limit) // it expires anyway
	})
}

const (
	releaseAttempts = 3
	minReleaseDelay = 10 * time.Millisecond
	maxReleaseDelay = 100 * time.Millisecond
)

// release asks the store to release, and again while the outcome is unknown. An
// attempt that finds nothing after one whose answer was lost means that the
// first one did it, if the lock was certainly still ours: until trusted.
//
// It works although ctx is cancelled, and takes no longer than limit.
func (c *Client) release(ctx context.Context, grant driver.Grant, trusted clock.Instant, limit time.Duration) error {
	return c.releaseAfter(ctx, 0, grant, trusted, limit)
}

// releaseAfter is release after some attempts whose outcome is unknown.
func (c *Client) releaseAfter(ctx context.Context, attempt int, grant driver.Grant, trusted clock.Instant, limit time.Duration) error {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	began := c.clock.NoLaterThanNow()
	left := limit
	delay := backoff.Backoff{Min: minReleaseDelay, Max: maxReleaseDelay}
	for {
		attempt++
		bounded, cancel := c.limited(ctx, min(c.limit, left))
		// Whoever's time is up, it was given for the store to answer.
		err := c.explain(ctx, bounded, c.store.Release(bounded, grant))
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNotHeld):
			if attempt > 1 && c.clock.Now() < trusted {
				return nil
			}
			return err
		}
		pause := delay.Next()
		left = limit - (c.clock.Now() - began) - pause
		if attempt == releaseAttempts || left <= 0 {
			return err
		}
		<-time.After(pause)
	}
}
