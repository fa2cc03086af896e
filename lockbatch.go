package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
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
		err := w.enterAll()
		if err == nil {
			err = c.attemptAll(w.ctx, holds, w.timeLeft())
			switch {
			case err == nil:
				for _, h := range holds {
					_ = w.report(h, nil)
				}
				return nil
			case errors.Is(err, ErrUnsupported):
				w.leaveAllBut(nil)
				return c.acquireInOrder(ctx, holds, w.waited())
			}
			err = w.beforeRetry(err)
		}
		if err != nil {
			for _, h := range holds {
				h.abandon()
			}
			return w.report(w.blocked, err)
		}
	}
}

// enterAll makes the holds the occupants of all slots. It pauses once for all of them.
func (w *batchWait) enterAll() error {
	var pause time.Duration
	for i := 0; i < len(w.holds); i++ {
		h := w.holds[i]
		if h.slot.Load() != nil {
			continue
		}
		if occupant := h.tryEnter(); occupant != nil {
			w.leaveAllBut(nil)
			w.blocked = h
			if err := w.queueBehind(occupant, h); err != nil {
				return err
			}
			i, pause = -1, 0 // again from the first name
			continue
		}
		pause = max(pause, w.pauseBeforeTaking(h))
	}
	return w.sleep(w.blocked, pause)
}

func (w *batchWait) leaveAllBut(but *hold) {
	for _, h := range w.holds {
		if h != but {
			h.leaveSlot()
		}
	}
}

// attemptAll asks the store once for all holds, and begins them.
func (c *Client) attemptAll(ctx context.Context, holds []*hold, limit time.Duration) error {
	if c.calls.closed.Load() {
		return ErrClosed
	}
	reqs := make([]driver.Request, len(holds))
	for i, h := range holds {
		reqs[i] = h.attemptRequest()
	}
	limited, cancel := c.limited(ctx, limit)
	defer cancel()
	sent := c.clock.NoLaterThanNow()
	grants, err := c.batcher.AcquireAll(limited, reqs)
	if err != nil {
		for _, h := range holds {
			h.noteFailure(err)
		}
		return c.explain(ctx, limited, err)
	}
	for i, h := range holds {
		err = errors.Join(err, h.accept(grants[i], sent))
	}
	if err != nil {
		return err
	}
	for i, h := range holds {
		if err := h.startLease(sent); err != nil {
			unlockAcquired(holds[:i]...)
			return err
		}
	}
	return nil
}

// beforeRetry is wait.beforeRetry for the name that the store refused.
func (w *batchWait) beforeRetry(err error) error {
	held, refused := errors.AsType[*driver.HeldError](err)
	switch {
	case w.holds[0].endCause() != nil: // the lease of a later name could not be started
		return fmt.Errorf("locking %q: %w", w.blocked.name, err)
	case !refused:
		return w.afterFailure(w.blocked, err)
	}
	h := w.holds[max(0, slices.IndexFunc(w.holds, func(h *hold) bool { return h.name == held.Name }))]
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
		atOnce, err = false, w.sleep(h, w.pollDelay(h, held))
	}
	w.triedAtOnce = atOnce
	return err
}
