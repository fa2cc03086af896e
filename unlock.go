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
		l.result = l.hold.unlock(ctx)
	})
	return l.result
}

// unlock removes one lease from the hold. The last lease releases the lock.
func (h *hold) unlock(ctx context.Context) error {
	c := h.client
	c.calls.add()
	defer c.calls.end()
	if h.leader != nil {
		h.expireIfOverdue() // only the last member asks the store, which would report the loss
	}
	last, ends := h.removeLease()
	var err error
	switch {
	case last && h.leader != nil:
		err = h.leader.group.unlockMember(ctx, h)
	case ends:
		err = h.releaseOrHandOver(ctx)
	default:
		cause := h.endCause()
		if last {
			h.releaseLost()
		}
		return h.notHeld(cause)
	}
	if ends {
		call(c.hooks.Released, Event{Name: h.name, Token: h.token, Err: err})
	}
	return err
}

// notHeld returns the error of an Unlock of a hold that ended before with cause, or nil.
func (h *hold) notHeld(cause error) error {
	switch {
	case errors.Is(cause, ErrLost): // it contains the name
		return fmt.Errorf("%w: %w", ErrNotHeld, cause)
	case errors.Is(cause, ErrClosed):
		return fmt.Errorf("%w: %q: %w", ErrNotHeld, h.name, cause)
	}
	return nil
}

// releaseLost releases in the background a lock that was lost. The store may still count it as held,
// and contenders need not wait until it expires. If the store does not, because the lock was broken, it
// may still get an attempt whose answer was lost, and undoes only attempts of owners that have released.
func (h *hold) releaseLost() {
	if c := h.client; !c.calls.closed.Load() {
		c.releaseInBackground(h.Grant, 2*c.requestTimeout)
	}
}

// releaseInBackground releases a grant that expires otherwise, within limit.
func (c *Client) releaseInBackground(grant driver.Grant, limit time.Duration) {
	c.cleanups.Go(func() { _, _ = c.releaseGrant(context.Background(), grant, c.clock.NoLaterThanNow()+limit) })
}

// removeLease reports whether the lease was the last one of the hold, and whether its
// removal ends the hold. A lost hold has ended before.
func (h *hold) removeLease() (last, ends bool) {
	h.mu.Lock()
	h.leases--
	last = h.leases == 0
	ends = last && h.endLocked(ErrReleased)
	h.mu.Unlock()
	if ends {
		h.cancelContext(ErrReleased)
	}
	return last, ends
}

// releaseOrHandOver gives up the lock of a hold that has just ended. It hands the lock over to
// the next waiter of this process, or releases it in the store. If the store does not answer, the
// release goes on in the background.
func (h *hold) releaseOrHandOver(ctx context.Context) error {
	err := h.tryReleaseOrHandOver(ctx)
	if isFinal(err) {
		return h.explainRelease(err)
	}
	c := h.client
	c.cleanups.Go(func() {
		if err := c.repeatRelease(h.Grant, h.expiry(), err); err != nil {
			if c.calls.closed.Load() {
				c.unreleased.Add(1)
			}
			c.logger.Warn("dlock: a lock could not be released and is left to expire", "name", h.name, "err", err)
		}
	})
	return fmt.Errorf("unlocking %q, which goes on in the background until the lock expires: %w", h.name, err)
}

// tryReleaseOrHandOver is releaseOrHandOver without the background.
func (h *hold) tryReleaseOrHandOver(ctx context.Context) error {
	renewal := h.client.watchdog.Forget(&h.Hold)
	if h.handOver() {
		return nil
	}
	return h.releaseToStore(ctx, renewal)
}

// explainRelease returns the error of a release that does not go on.
func (h *hold) explainRelease(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotHeld):
		return fmt.Errorf("%w: %q: %w: the store found no lock to release", ErrNotHeld, h.name, ErrLost)
	}
	return fmt.Errorf("unlocking %q, which is left to expire: %w", h.name, err)
}

// releaseToStore releases the lock for all contenders, and leaves the slot. It waits for the
// end of a renewal that is under way.
func (h *hold) releaseToStore(ctx context.Context, renewal <-chan struct{}) error {
	c := h.client
	until := h.ended + 2*c.requestTimeout
	if renewal != nil {
		select {
		case <-renewal:
		case <-time.After(c.requestTimeout):
		}
		until = max(until, c.clock.NoLaterThanNow()+c.requestTimeout)
	}
	attempts, err := c.releaseGrant(ctx, h.Grant, until)
	if errors.Is(err, ErrNotHeld) && attempts > 1 && c.clock.Now() < h.TrustDeadline() {
		err = nil // a call without an answer has released the lock
	}
	if slot := h.slot.Swap(nil); slot != nil { // a permit may leave its slot at the same time
		slot.State.Released(c.clock.NoLaterThanNow())
		c.noteUnanswered(slot, err)
		slot.Leave(!errors.Is(err, ErrUnreachable))
		h.outcome.announce()
	}
	return err
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
