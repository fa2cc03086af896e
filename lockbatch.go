package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// batchCall is a LockAll that acquires all names in one step. It waits
// for one name at a time, and occupies no other slot meanwhile, so that no caller waits
// for a name that is not held. Only while the store does not answer does it keep all slots,
// for up to a TTL.
type batchCall struct {
	lockCall
	holds        []*hold
	blocking     *hold // its name is the one that is waited for
	subscribedTo *hold // its name is the one of the subscription
	triedAtOnce  bool  // the last attempt followed a subscription, without a sleep
}

// acquireBatch acquires all holds in one step of the store.
func (c *Client) acquireBatch(ctx context.Context, holds []*hold) error {
	b := batchCall{
		lockCall: lockCall{client: c, settings: holds[0].settings, ctx: ctx},
		holds:    holds,
		blocking: holds[0],
	}
	defer b.stopWaiting()
	for {
		err := b.enterAll()
		if err == nil {
			err = c.attemptAll(b.ctx, holds, b.timeLeft())
			switch {
			case err == nil:
				for _, h := range holds {
					_ = b.report(h, nil)
				}
				return nil
			case errors.Is(err, ErrUnsupported), b.shouldQueue(err):
				b.leaveAllBut(nil)
				for _, h := range holds {
					if h.needsUndo { // by an attempt for all names; acquireInOrder may never come to this one
						h.releaseUnusable()
					}
				}
				return c.acquireInOrder(ctx, holds, b.timeWaited())
			}
			err = b.beforeBatchRetry(err)
		}
		if err != nil {
			for _, h := range holds {
				h.abandon()
			}
			return b.report(b.blocking, err)
		}
	}
}

// enterAll makes the holds the occupants of all slots. It pauses once for all of them.
func (b *batchCall) enterAll() error {
	var pause time.Duration
	for i := 0; i < len(b.holds); i++ {
		h := b.holds[i]
		if h.slot.Load() != nil {
			continue
		}
		if occupant := h.tryEnter(); occupant != nil {
			b.leaveAllBut(nil)
			b.blocking = h
			if err := b.queueBehind(occupant, h); err != nil {
				return err
			}
			i, pause = -1, 0 // again from the first name
			continue
		}
		pause = max(pause, b.pauseBeforeTaking(h))
	}
	return b.pause(b.blocking, pause, b.holds...)
}

// shouldQueue reports whether err is a refusal, and fair callers wait for one of the names: for the
// refused one as the store says, or for another one as callers of this process have found.
func (b *batchCall) shouldQueue(err error) bool {
	return b.mayQueue(b.blocking, err) || errors.Is(err, ErrHeld) && slices.ContainsFunc(b.holds, (*hold).knowsFairWaiters)
}

func (b *batchCall) leaveAllBut(but *hold) {
	for _, h := range b.holds {
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
		reqs[i].Queue = reqs[i].Queue && c.traits.Queues // a waiting LockAll reserves no name
	}
	limited, timer := c.withTimeout(ctx, limit)
	defer timer.End()
	sent := c.clock.NoLaterThanNow()
	for _, h := range holds {
		h.asked.Store(int64(sent))
	}
	grants, err := c.batcher.AcquireAll(limited, reqs)
	if err != nil {
		for i, h := range holds {
			h.noteFailure(reqs[i].Queue, err)
		}
		return c.explain(ctx, limited, err)
	}
	for i, h := range holds {
		err = errors.Join(err, h.accept(grants[i], grants[i].Token, sent))
	}
	if err != nil {
		return err
	}
	for i, h := range holds {
		if err := h.startWatchdog(sent); err != nil {
			releaseUndelivered(ErrReleased, holds[:i]...)
			return err
		}
	}
	return c.deliver(holds...)
}

// beforeBatchRetry is beforeRetry for the name that the store refused.
func (b *batchCall) beforeBatchRetry(err error) error {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	switch {
	case b.holds[0].endCause() != nil: // attemptAll has released it: a later lease could not be started
		return fmt.Errorf("locking %q: %w", b.blocking.name, err)
	case !refused:
		return b.afterFailure(b.blocking, err)
	}
	h := b.holds[max(0, slices.IndexFunc(b.holds, func(h *hold) bool { return h.name == refusal.Name }))]
	b.leaveAllBut(h)
	b.blocking = h
	if h != b.subscribedTo {
		b.unsubscribe()
		b.subscribedTo = h
	}
	if err := b.noteRefusal(h, refusal); err != nil {
		return err
	}
	subscribed, err := b.awaitRelease(h, refusal)
	if subscribed && b.triedAtOnce { // a different name blocks each time
		b.triedAtOnce = false
		return b.sleep(h, b.pollDelay(h, refusal))
	}
	b.triedAtOnce = subscribed
	return err
}
