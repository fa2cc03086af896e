package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/localqueue"
)

type slot = localqueue.Slot[hold, queueState]

// queueState is what a caller leaves to its successor in the local queue.
type queueState struct {
	contention.State
	handedOver *handedOver // nil if the lock was not handed over
	usedTokens uint64      // of the last grant
}

// enter makes h the occupant of the slot of its name, after the callers of this
// process that came before.
func (w *wait) enter(h *hold) error {
	c := w.client
	for h.slot.Load() == nil {
		occupant := h.tryEnter()
		var err error
		if occupant == nil {
			err = w.sleep(h, w.pauseBeforeTaking(h))
		} else {
			err = w.queueBehind(occupant, h)
		}
		if err != nil {
			h.leaveSlot()
			return err
		}
	}
	if c.calls.closed.Load() && w.state(h).handedOver == nil {
		h.leaveSlot()
		return ErrClosed
	}
	return nil
}

// tryEnter makes h the occupant of a free slot, or returns the occupant.
func (h *hold) tryEnter() (occupant *hold) {
	slot, occupant := h.client.queue.TryEnter(h.name, h)
	if slot != nil {
		slot.State.ForgetOutage() // what the last occupant knew may be old
		h.slot.Store(slot)
	}
	return occupant
}

// leaveSlot admits the next caller of this process.
func (h *hold) leaveSlot() {
	if slot := h.slot.Swap(nil); slot != nil {
		slot.Leave()
		h.outcome.announce()
	}
}

// pauseBeforeTaking returns how long h lets other processes try first: at the end of a
// time slice, if the caller has the time.
func (w *wait) pauseBeforeTaking(h *hold) time.Duration {
	if !w.settings.waits() {
		return 0
	}
	pause := w.state(h).PauseBeforeTaking(w.client.clock.NoLaterThanNow(), &w.client.slices)
	ends, limited := w.ctx.Deadline()
	late := limited && pause > 0 && time.Until(ends) < pause
	if limit := w.settings.wait; late || limit > 0 && !w.began && limit < pause {
		return 0 // one attempt is worth more
	}
	return pause
}

// queueBehind makes h the occupant after the callers that came before. For a caller
// that does not want to wait, it blocks until the occupant's attempt has an outcome;
// after nil the caller tries to enter again.
func (w *wait) queueBehind(occupant, h *hold) error {
	if w.startWaiting() != nil {
		return w.awaitOutcome(occupant, h)
	}
	ctx, cancel := w.whileAnswerIsDue(occupant)
	slot, err := w.client.queue.Enter(ctx, h.name, h)
	cancel()
	if errors.Is(err, errNoOutcome) {
		return fmt.Errorf("locking %q: %w for %v", h.name, errNoOutcome, w.client.requestTimeout)
	}
	if err != nil {
		held := cmp.Or(w.client.queue.Occupant(h.name).heldError(), occupant.heldError())
		if held == nil { // the occupant has no answer to its attempt or its release
			w.failure = errNoOutcome
		}
		return w.gaveUp(h, held)
	}
	h.queued = true
	h.slot.Store(slot)
	switch {
	case slot.State.handedOver != nil:
		return nil
	case w.ctx.Err() != nil:
		return w.gaveUp(h, occupant.heldError())
	}
	if err := slot.State.OutageTooLong(w.client.clock.NoLaterThanNow(), w.settings.ttl); err != nil {
		return fmt.Errorf("locking %q: %w", h.name, err)
	}
	w.failure = nil
	if slot.State.Answers() {
		w.answered, w.answerBy = true, time.Time{}
	}
	return w.sleep(h, w.pauseBeforeTaking(h))
}

// whileAnswerIsDue returns the context in which the caller queues behind the occupant. If the
// lock is not known to be held, it ends when the occupant has had no outcome for as long as
// this call may wait for an answer.
func (w *wait) whileAnswerIsDue(occupant *hold) (context.Context, context.CancelFunc) {
	c := w.client
	if c.traits.Local || occupant.heldError() != nil {
		w.answered = true
		return w.ctx, func() {}
	}
	w.failure = errNoOutcome
	announced := occupant.outcome.wait()
	ctx, cancel := context.WithCancelCause(w.ctx)
	timer := time.AfterFunc(w.answerDue(), func() {
		select {
		case <-announced:
		default:
			if c.queue.Occupant(occupant.name) == occupant && occupant.heldError() == nil {
				cancel(errNoOutcome)
			}
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// answerDue returns how long this call goes on without an answer of the store: for a
// RequestTimeout since it found that another caller has none, and had no answer since.
func (w *wait) answerDue() time.Duration {
	if w.answerBy.IsZero() {
		w.answerBy = time.Now().Add(w.client.requestTimeout)
	}
	return time.Until(w.answerBy)
}

// errNoOutcome is the failure of a call behind another attempt of unknown outcome:
// the lock may be free, held or unreachable.
var errNoOutcome = fmt.Errorf("%w: an earlier attempt of this process has no outcome yet", ErrUnreachable)

// awaitOutcome blocks until the occupant's attempt has an outcome. It returns the
// holder, or nil to try again.
func (w *wait) awaitOutcome(occupant, h *hold) error {
	announced := occupant.outcome.wait()
	if held := occupant.heldError(); held != nil {
		return held
	}
	if w.client.queue.Occupant(h.name) != occupant {
		return nil // the outcome was announced before
	}
	select {
	case <-announced:
		if held := occupant.heldError(); held != nil {
			return held // one refusal answers all callers that waited for it
		}
		return nil
	case <-time.After(w.answerDue()):
		return fmt.Errorf("locking %q: %w for %v", h.name, errNoOutcome, w.client.requestTimeout)
	case <-w.client.calls.closing:
		return ErrClosed
	case <-w.ctx.Done():
		w.failure = errNoOutcome
		return w.gaveUp(h, nil)
	}
}

// heldError describes h to another caller of this process: the lock that h has, or
// the lock that h waits for. It returns nil if the store has not said yet that the
// lock is held, and for a nil h.
func (h *hold) heldError() *driver.HeldError {
	if h == nil {
		return nil
	}
	if deadline := h.TrustDeadline(); deadline != 0 {
		if h.endCause() != nil { // the outcome of the release is not known yet
			return nil
		}
		left := deadline - h.client.clock.NoLaterThanNow()
		return &driver.HeldError{Name: h.name, Token: h.token, Holder: h.holder(), Remaining: max(0, left)}
	}
	return h.refusal.Load()
}
