package dlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/localqueue"
)

type slot = localqueue.Slot[hold, queueState]

// queueState is what a caller leaves to its successor in the local queue.
type queueState struct {
	contention.State
	fairWaiters bool // of any process have places in the store, as far as known
}

// enter blocks until h is the occupant of the slot of its name, or a permit was handed over to it.
// Callers of this process enter in the order of arrival.
func (lc *lockCall) enter(h *hold) error {
	for h.slot.Load() == nil && h.received == nil {
		occupant := h.tryEnter()
		var err error
		if occupant == nil {
			err = lc.pause(h, lc.pauseBeforeTaking(h), h)
		} else {
			err = lc.queueBehind(occupant, h)
		}
		if err != nil {
			h.leaveSlot()
			return err
		}
	}
	if lc.client.calls.closed.Load() && h.received == nil {
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
		slot.State.ForgetPause() // after a grant or a refusal there is none
		slot.Leave(h.wasGranted() || h.refusal.Load() != nil)
		h.outcome.announce()
	}
}

// pauseBeforeTaking returns the pause that h makes at the end of a time slice, so that other
// processes can try. It is zero inside a slice, and if the caller has less time than the pause.
func (lc *lockCall) pauseBeforeTaking(h *hold) time.Duration {
	if !lc.settings.waits() {
		return 0
	}
	state := lc.state(h)
	pause := state.PauseBeforeTaking(lc.client.clock.NoLaterThanNow(), &lc.client.slices)
	ends, limited := lc.ctx.Deadline()
	late := limited && pause > 0 && time.Until(ends) < pause
	if limit := lc.settings.wait; late || limit > 0 && !lc.isWaiter && limit < pause {
		state.ForgetPause() // the caller has no time for it
		return 0
	}
	return pause
}

// pause lets other processes try before the attempt for holds, of which h is in the way. For holds that
// took a free slot, this process waits for no answer of the store meanwhile.
func (lc *lockCall) pause(h *hold, limit time.Duration, holds ...*hold) error {
	if limit <= 0 {
		return nil
	}
	for _, p := range holds {
		p.pausing.Store(!p.waitedLocally)
	}
	err := lc.sleep(h, limit)
	for _, p := range holds {
		p.pausing.Store(false)
	}
	return err
}

// queueBehind queues h behind the occupant and the callers that came before, and blocks until h is
// the occupant. For a caller that does not want to wait, or wants the name with another limit, it
// blocks only until the occupant's attempt has an outcome. If it returns nil and h has no slot, h
// tries to enter again.
func (lc *lockCall) queueBehind(occupant, h *hold) error {
	if !lc.startWaiting() || occupant.settings.mode.Limit != h.settings.mode.Limit {
		return lc.awaitOutcome(occupant, h)
	}
	ctx, cancel := lc.queueContext(occupant)
	slot, err := lc.client.queue.Enter(ctx, h.name, h)
	cancel()
	if err == errNoOutcome { //nolint:errorlint // the cause of the caller may wrap that of another call
		return lc.unanswered(h)
	}
	if err != nil {
		lc.noteNoOutcome(h)
		return lc.giveUpError(h, nil)
	}
	h.waitedLocally = true
	h.slot.Store(slot)
	switch {
	case h.received != nil:
		lc.noteAnswer()  // to the caller that handed the lock over
		if slot == nil { // a permit, whose waiter knows nothing by a slot
			lc.ownState.Answered(lc.client.clock.NoLaterThanNow())
		}
		return nil
	case lc.ctx.Err() != nil:
		lc.noteNoOutcome(h)
		return lc.giveUpError(h, nil)
	}
	if err := lc.learnFrom(h, slot); err != nil {
		return err
	}
	return lc.sleep(h, lc.pauseBeforeTaking(h))
}

// learnFrom takes over what the callers before h have learned about the store. It returns an error
// if they have found an outage that is not worth waiting for.
func (lc *lockCall) learnFrom(h *hold, slot *slot) error {
	if err := slot.State.OutageTooLong(lc.client.clock.NoLaterThanNow(), lc.settings.ttl); err != nil {
		return fmt.Errorf("locking %q: %w", h.name, err)
	}
	lc.failure = nil
	if lc.isWaiter && (slot.State.Answers() || slot.State.AnsweredAfter(lc.waitingSince)) {
		lc.noteAnswer()
	}
	return nil
}

// noteAnswer records that the store has answered a caller before this one. The next attempt has a
// RequestTimeout of its own.
func (lc *lockCall) noteAnswer() {
	lc.storeHasAnswered, lc.answerBy, lc.failure = true, time.Time{}, nil
}

// queueContext returns the context in which the caller queues behind the occupant. If the
// lock is not known to be held, it ends when the occupant has had no outcome for as long as
// this call may wait for an answer.
func (lc *lockCall) queueContext(occupant *hold) (context.Context, context.CancelFunc) {
	c := lc.client
	if c.traits.Local || occupant.heldError() != nil {
		lc.storeHasAnswered = true
		return lc.ctx, func() {}
	}
	announced := occupant.outcome.next()
	ctx, cancel := context.WithCancelCause(lc.ctx)
	timer := time.AfterFunc(lc.timeForAnswer(), func() {
		select {
		case <-announced:
		default:
			if c.queue.Callers(occupant.name).Occupant == occupant && occupant.heldError() == nil {
				cancel(errNoOutcome)
			}
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// timeForAnswer returns how long this call may still wait for the store's answer to another caller.
// The time begins when it is first asked for, and lasts for a RequestTimeout or until an answer.
func (lc *lockCall) timeForAnswer() time.Duration {
	if lc.answerBy.IsZero() {
		lc.answerBy = time.Now().Add(lc.client.requestTimeout)
	}
	return time.Until(lc.answerBy)
}

// errNoOutcome is the failure of a call behind another attempt of unknown outcome:
// the lock may be free, held or unreachable.
var errNoOutcome = fmt.Errorf("%w: the store has not answered an earlier call of this process", ErrUnreachable)

// noteNoOutcome records that h gives up behind an attempt of unknown outcome. An occupant that pauses
// has made no attempt yet.
func (lc *lockCall) noteNoOutcome(h *hold) {
	occupant, now := lc.client.queue.Callers(h.name).Occupant, lc.client.clock.Now()
	switch {
	case occupant != nil && occupant.pausing.Load():
	case occupant == nil || occupant == h:
		lc.noteGivenUp(errNoOutcome, lc.state(h), now)
	default: // the state is not this caller's
		lc.noteGivenUp(errNoOutcome, &queueState{}, cmp.Or(occupant.unansweredSince(), now))
		lc.tooEarly = lc.tooEarly && !occupant.unanswered.Load()
	}
}

// unansweredSince returns when h began the call of unknown outcome that is under way, or zero.
func (h *hold) unansweredSince() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.ended, clock.Instant(h.asked.Load())) // a release or an undo follows the end
}

// noteGivenUp records that the caller's own limit ends the call. The store has not answered since silent.
func (lc *lockCall) noteGivenUp(failure error, state *queueState, silent clock.Instant) {
	tooEarly := state.GaveUp(lc.client.clock.Now(), silent, maxHolderAge)
	lc.tooEarly = tooEarly && (lc.failure == nil || lc.tooEarly)
	lc.failure = failure
}

// unanswered is the error of a call that has waited too long for an answer.
func (lc *lockCall) unanswered(h *hold) error {
	return fmt.Errorf("locking %q: %w within %v", h.name, errNoOutcome, lc.client.requestTimeout)
}

// awaitOutcome blocks until the occupant's attempt has an outcome. It returns why h cannot
// have the lock, or nil to try again.
func (lc *lockCall) awaitOutcome(occupant, h *hold) error {
	announced := occupant.outcome.next()
	if err := occupant.excludes(h); err != nil {
		return err
	}
	if lc.client.queue.Callers(h.name).Occupant != occupant {
		return nil // the outcome was announced before
	}
	select {
	case <-announced:
		if err := occupant.excludes(h); err != nil {
			return err // one refusal answers all callers that waited for it
		}
		return nil
	case <-time.After(lc.timeForAnswer()):
		return lc.unanswered(h)
	case <-lc.client.calls.closing:
		return ErrClosed
	case <-lc.ctx.Done():
		lc.noteNoOutcome(h)
		return lc.giveUpError(h, nil)
	}
}
