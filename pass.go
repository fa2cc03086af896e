package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/localqueue"
)

// passed is a lock that whoever was inside the slot before has taken for the next
// one, in the step in which it gave up its own: one call where there would be two,
// and nobody else is woken in vain. A process does that until its turn is over.
//
// Its owner is new, and not the one that the next one asks the store with, because
// of what is undone of a step of unknown outcome something may arrive late.
type passed struct {
	grant driver.Grant
	sent  clock.Instant
}

// queueState is what a caller leaves to its successor in the local queue.
type queueState struct {
	contention.State
	passed *passed // the lock itself; nil if it was not handed over
}

// giveToNext gives the lock to the next one of this process who waits for it, or
// back to the store, and leaves the slot.
func (h *hold) giveToNext(ctx context.Context) error {
	c := h.client
	slot := h.slot.Load()
	if slot == nil {
		return c.release(ctx, h.Grant, h.TrustDeadline(), 2*c.limit)
	}
	if next := h.successor(slot); next != nil {
		return h.pass(ctx, slot, next)
	}
	return h.giveBack(ctx, slot)
}

// giveBack gives the lock to the store, for anybody to have.
func (h *hold) giveBack(ctx context.Context, slot *localqueue.Slot[hold, queueState]) error {
	c := h.client
	err := c.release(ctx, h.Grant, h.TrustDeadline(), 2*c.limit)
	slot.State.Released(c.clock.NoLaterThanNow())
	h.leave()
	return err
}

// successor is who gets the lock without others having had a chance; nil if nobody.
func (h *hold) successor(slot *localqueue.Slot[hold, queueState]) *hold {
	c := h.client
	if c.passer == nil || c.life.ended.Load() {
		return nil
	}
	if !slot.State.MayHandOver(c.clock.NoLaterThanNow(), &c.slices) {
		return nil
	}
	if next := slot.Next(); next != nil && next.alone {
		return next
	}
	return nil
}

// pass gives the lock to next.
func (h *hold) pass(ctx context.Context, slot *localqueue.Slot[hold, queueState], next *hold) error {
	c := h.client
	req := next.attemptRequest()
	req.Owner = driver.NewOwner()
	bounded, cancel := c.bounded(context.WithoutCancel(ctx))
	sent := c.clock.NoLaterThanNow()
	grant, err := c.passer.Pass(bounded, h.Grant, req)
	cancel()
	slot.State.Released(c.clock.NoLaterThanNow())
	switch {
	case err == nil:
		slot.State.passed = &passed{grant, sent}
		h.slot.Store(nil)
		if !slot.HandOff(next) { // it waits no more
			slot.State.passed = nil
			h.slot.Store(slot)
			h.takeBack(grant)
		}
		return nil
	case errors.Is(err, ErrNotHeld):
		h.leave()
		return err
	case errors.Is(err, ErrUnsupported):
		return h.giveBack(ctx, slot)
	}
	// It may have happened, may still happen, or never.
	err = c.releaseAfter(ctx, 1, h.Grant, h.TrustDeadline(), c.limit)
	h.takeBack(driver.Grant{Name: h.name, Owner: req.Owner})
	return err
}

// takeBack gives a lock back that was passed to nobody, and then leaves the slot, so
// that the next one does not find it held by a ghost.
func (h *hold) takeBack(grant driver.Grant) {
	c := h.client
	c.cleanups.Go(func() {
		defer h.leave()
		if err := c.release(context.Background(), grant, never, c.limit); err != nil && !errors.Is(err, ErrNotHeld) {
			c.logger.Warn("dlock: a lock that was passed on could not be given back and is left to expire",
				"name", grant.Name, "err", err)
		}
	})
}

// takePassed returns what the one before has handed on, once.
func (h *hold) takePassed() (p *passed) {
	if slot := h.slot.Load(); slot != nil {
		p, slot.State.passed = slot.State.passed, nil
	}
	return p
}
