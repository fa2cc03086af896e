package dlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// handedOver is a lock that a hold acquired for the next waiter of this process in
// the step in which it released its own: one call instead of two, and no other process
// is woken in vain. A process hands over until its time slice ends.
//
// The lock has a new owner, different from the one with which the waiter asks the
// store. So a late attempt to undo a hand-over of unknown outcome cannot release a lock
// that the waiter acquired itself.
type handedOver struct {
	grant driver.Grant
	sent  clock.Instant
}

// successor returns the waiter to hand the lock over to, or nil.
func (h *hold) successor() *hold {
	c, slot := h.client, h.slot.Load()
	if slot == nil || c.passer == nil || c.calls.closed.Load() {
		return nil
	}
	if !slot.State.MayHandOver(c.clock.NoLaterThanNow(), &c.slices) {
		return nil
	}
	if next := slot.Next(); next != nil && next.single {
		return next
	}
	return nil
}

// handOver gives the lock and the slot to next. limit is more than a request takes.
func (h *hold) handOver(ctx context.Context, next *hold, limit time.Duration) error {
	c, slot := h.client, h.slot.Load()
	req := next.attemptRequest()
	req.Owner = driver.NewOwner()
	limited, cancel := c.limited(context.WithoutCancel(ctx), c.requestTimeout)
	sent := c.clock.NoLaterThanNow()
	grant, err := c.passer.Pass(limited, h.Grant, req)
	cancel()
	slot.State.Released(c.clock.NoLaterThanNow())
	switch {
	case err == nil:
		slot.State.handedOver = &handedOver{grant, sent}
		h.slot.Store(nil)
		if !slot.HandOff(next) { // next does not wait any more
			slot.State.handedOver = nil
			h.slot.Store(slot)
			h.undo(grant)
			return nil
		}
		h.outcome.announce()
		return nil
	case errors.Is(err, ErrNotHeld):
		h.leaveSlot()
		return err
	case errors.Is(err, ErrUnsupported):
		return h.releaseToStore(ctx, limit)
	}
	// The hand-over may have happened, may still happen, or may never happen.
	err = h.releaseGrant(ctx, 1, limit-c.requestTimeout)
	h.undo(driver.Grant{Name: h.name, Owner: req.Owner})
	return err
}

// takeHandedOver returns the lock that the predecessor handed over, once.
func (h *hold) takeHandedOver() (lock *handedOver) {
	if slot := h.slot.Load(); slot != nil {
		lock, slot.State.handedOver = slot.State.handedOver, nil
	}
	return lock
}
