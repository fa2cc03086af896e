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

// acquire takes the lock for h: it enters the local queue, then asks the store until
// the store grants the lock or the caller gives up. Fair callers all ask the store.
func (w *wait) acquire(h *hold) error {
	defer w.stop()
	if !w.settings.fair {
		h.single = true
		if err := w.enter(h); err != nil {
			return w.report(h, err)
		}
	}
	for {
		sent, err := h.attempt(w.ctx, w.timeLeft())
		if err == nil {
			err = h.startLease(sent)
		}
		if err == nil {
			return w.report(h, nil)
		}
		if err = w.beforeRetry(h, err); err != nil {
			h.abandon()
			return w.report(h, err)
		}
	}
}

// attempt takes the lock that the predecessor in the local queue handed over. Without
// one, or if its grant has ended, it asks the store once, which takes no longer than limit. It returns when the request was sent.
func (h *hold) attempt(ctx context.Context, limit time.Duration) (sent clock.Instant, err error) {
	c := h.client
	if lock := h.takeHandedOver(); lock != nil {
		h.revocation = lock.revocation
		err := h.accept(lock.grant, lock.sent)
		if err == nil && c.clock.Now() < lock.sent+lock.grant.TTL-h.Margin {
			h.token = lock.token
			return lock.sent, nil
		}
		h.forgetGrant() // it ended during the hand-over
	}
	req := h.attemptRequest()
	limited, cancel := c.limited(ctx, limit)
	defer cancel()
	sent = c.clock.NoLaterThanNow()
	grant, err := c.store.Acquire(limited, req)
	if err != nil {
		h.noteFailure(err)
		return sent, c.explain(ctx, limited, err)
	}
	return sent, h.accept(grant, sent)
}

// noteFailure records whether an attempt that failed has to be undone: the store may
// carry it out, or keeps a place in its queue.
func (h *hold) noteFailure(err error) {
	if h.queues() || !driver.Unchanged(err) {
		h.needsUndo = true
	}
}

// accept checks a grant. A grant that arrives after its trust deadline is rejected,
// and so is a lock that the store revoked before it was granted.
func (h *hold) accept(grant driver.Grant, sent clock.Instant) error {
	h.Grant, h.token = grant, grant.Token
	h.needsUndo = true
	h.Margin = watchdog.Margin(grant.TTL, h.settings.margin)
	c := h.client
	if !c.traits.Local && c.clock.Now() >= sent+grant.TTL-h.Margin {
		return fmt.Errorf("%w: the answer took longer than the lease lasts", ErrUnreachable)
	}
	return h.revocation.reportTo(nil)
}

// startLease makes the grant the caller's lock. If it fails, nothing is held.
func (h *hold) startLease(sent clock.Instant) error {
	c := h.client
	handedOver := h.token != h.Grant.Token
	if slot := h.slot.Load(); slot != nil && !handedOver {
		slot.State.Taken(sent, &c.slices)
	}
	if err := h.revocation.reportTo(h); err != nil {
		if handedOver {
			h.forgetGrant()
		}
		return err
	}
	c.dog.Watch(&h.Hold, sent)
	if c.traits.ReportsLoss && h.endCause() != nil { // revoked before Watch
		c.dog.Forget(&h.Hold)
	}
	h.outcome.announce()
	if c.calls.closed.Load() {
		if h.end(ErrClosed) {
			_ = h.release(context.Background()) // the lock expires anyway
		}
		return ErrClosed
	}
	return nil
}

// forgetGrant gives up a grant that other leases have used. If its owner asked again, the
// store could return tokens that they had.
func (h *hold) forgetGrant() {
	c, grant := h.client, h.Grant
	h.Grant, h.token, h.needsUndo = driver.Grant{Name: h.name}, 0, false
	c.cleanups.Go(func() { _, _ = c.release(context.Background(), grant, c.requestTimeout) }) // or it expires
}

// abandon undoes attempts of unknown outcome, and gives up a place in the store's
// queue.
func (h *hold) abandon() {
	switch {
	case errors.Is(h.endCause(), ErrClosed): // the lease had begun, and was released
	case h.needsUndo:
		grant := h.Grant
		grant.Token = 0 // whatever the owner has
		h.undo(grant)
	default:
		h.leaveSlot()
	}
}

// undo releases grant in the background and then leaves the slot, so that the next
// caller of this process does not find the lock held by this abandoned attempt.
func (h *hold) undo(grant driver.Grant) {
	c := h.client
	c.cleanups.Go(func() {
		defer h.leaveSlot()
		if _, err := c.release(context.Background(), grant, c.requestTimeout); err != nil && !errors.Is(err, ErrNotHeld) {
			// The next caller asks the store all the same.
			c.logger.Warn("dlock: an attempt could not be undone and is left to expire", "name", grant.Name, "err", err)
			h.noteUnanswered(err)
		} else if slot := h.slot.Load(); slot != nil {
			slot.State.OutageEnded()
		}
	})
}

// noteUnanswered tells the next caller of this process that the store did not answer.
func (h *hold) noteUnanswered(err error) {
	if slot := h.slot.Load(); slot != nil && errors.Is(err, ErrUnreachable) {
		slot.State.Unanswered(h.client.clock.NoLaterThanNow(), err)
	}
}
