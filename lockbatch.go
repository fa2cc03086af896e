package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// batchWait is the waiting of a LockAll that acquires all names in one step. It waits
// for one name at a time, and occupies no other slot meanwhile, so that no caller waits
// for a name that is not held.
type batchWait struct {
	wait
	holds       []*hold
	blocked     *hold // the name that is waited for
	watched     *hold // the name of the subscription
	triedAtOnce bool  // the last attempt followed without a sleep
}

// acquireBatch acquires all holds in one step of the store.
func (c *Client) acquireBatch(ctx context.Context, holds []*hold) error {
	w := batchWait{
		wait:    wait{client: c, settings: &holds[0].settings, ctx: ctx},
		holds:   holds,
		blocked: holds[0],
	}
	defer w.stop()
	for {
		if err := w.enterAll(); err != nil {
			w.leaveAllBut(nil)
			return w.report(w.blocked, err)
		}
		err := c.attemptAll(w.ctx, holds)
		if err == nil {
			for _, h := range holds {
				_ = w.report(h, nil)
			}
			return nil
		}
		if errors.Is(err, ErrUnsupported) {
			w.leaveAllBut(nil)
			return err
		}
		if err = w.beforeRetry(err); err != nil {
			for _, h := range holds {
				h.abandon()
			}
			return w.report(w.blocked, err)
		}
	}
}

// enterAll makes the holds the occupants of all slots.
func (w *batchWait) enterAll() error {
	for {
		occupied, occupant := w.tryEnterAll()
		if occupied == nil {
			return nil
		}
		w.leaveAllBut(nil)
		w.blocked = occupied
		if err := w.queueBehind(occupant, occupied); err != nil {
			return err
		}
	}
}

// tryEnterAll enters all slots up to the first that is occupied, which it returns.
func (w *batchWait) tryEnterAll() (occupied, occupant *hold) {
	for _, h := range w.holds {
		if h.slot.Load() == nil {
			if occupant := h.tryEnter(); occupant != nil {
				return h, occupant
			}
		}
	}
	return nil, nil
}

func (w *batchWait) leaveAllBut(but *hold) {
	for _, h := range w.holds {
		if h != but {
			h.leaveSlot()
		}
	}
}

// attemptAll asks the store once for all holds, and begins them.
func (c *Client) attemptAll(ctx context.Context, holds []*hold) error {
	if c.calls.closed.Load() {
		return ErrClosed
	}
	reqs := make([]driver.Request, len(holds))
	for i, h := range holds {
		reqs[i] = h.attemptRequest()
	}
	sent, grants, err := c.callAll(ctx, reqs)
	if err != nil {
		for _, h := range holds {
			h.noteFailure(err)
		}
		return err
	}
	for i, h := range holds {
		err = errors.Join(err, h.accept(grants[i], sent))
	}
	if err != nil {
		return err
	}
	for i, h := range holds {
		if err := h.begin(sent); err != nil {
			unlockAcquired(holds[:i]...)
			return err
		}
	}
	return nil
}

func (c *Client) callAll(ctx context.Context, reqs []driver.Request) (clock.Instant, []driver.Grant, error) {
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	sent := c.clock.NoLaterThanNow()
	grants, err := c.batcher.AcquireAll(bounded, reqs)
	return sent, grants, c.explain(ctx, bounded, err)
}

// beforeRetry is wait.beforeRetry for the name that the store refused.
func (w *batchWait) beforeRetry(err error) error {
	held, refused := errors.AsType[*driver.HeldError](err)
	if !refused {
		return w.afterFailure(w.blocked, err)
	}
	h := w.named(held.Name)
	w.leaveAllBut(h)
	w.blocked = h
	if h != w.watched {
		w.unsubscribe()
		w.watched = h
	}
	if err := w.noteRefusal(h, held); err != nil {
		return err
	}
	atOnce, err := w.awaitRelease(h, held)
	if atOnce && w.triedAtOnce { // a different name blocks each time
		atOnce, err = false, w.sleep(h, w.pollDelay(held))
	}
	w.triedAtOnce = atOnce
	return err
}

// named returns the hold of name, or the first hold.
func (w *batchWait) named(name string) *hold {
	for _, h := range w.holds {
		if h.name == name {
			return h
		}
	}
	return w.holds[0]
}
