package dlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/deadline"
)

// restInCrowd is after how many sleeps a fair waiter polls although another one polls for it.
const restInCrowd = 30

// beforeRetry blocks after a failed attempt until the next attempt is worth it. It
// returns the error to give up with, or nil.
//
// If the store can notify, a waiter subscribes, tries again, and sleeps until it is notified. A lost
// notification costs time and never the lock, because the waiter also polls a few times in a TTL.
func (a *asker) beforeRetry(err error) error {
	if errors.Is(err, errLeftLine) {
		return a.giveUp()
	}
	refusal, refused := errors.AsType[*driver.HeldError](err)
	if !refused {
		return a.afterFailure(err)
	}
	if err := a.noteRefusal(refusal); err != nil {
		return err
	}
	if a.joinQueue(refusal) {
		return nil // the next attempt takes the place
	}
	_, err = a.awaitRelease()
	return err
}

// afterFailure waits for a store that did not answer, unless the outage is too long.
func (a *asker) afterFailure(err error) error {
	c, name := a.call.client, a.claim.name
	if deadline.Passed(a.call.ctx) != nil && !isAnswer(a.call.ctx, err) {
		a.call.noteGivenUp(err, a.state(), a.claim.asked)
		if !a.call.tooEarly {
			a.setRefusal(nil) // whether the lock is still held is unknown
		}
		return a.giveUp()
	}
	if errors.Is(err, ErrClosed) {
		return fmt.Errorf("locking %q: %w", name, err)
	}
	state, now := a.state(), c.clock.NoLaterThanNow()
	if !errors.Is(err, ErrUnreachable) {
		state.Answered(now) // the callers behind have a RequestTimeout of their own
		return fmt.Errorf("locking %q: %w", name, err)
	}
	state.Unanswered(now, err)
	if a.slot != nil {
		a.slot.ForgetPrevious()
		a.slot.Update(func(o *occupant) { o.silent = true })
	}
	if !a.call.storeHasAnswered || state.OutageTooLong(now, a.call.settings.ttl) != nil {
		return fmt.Errorf("locking %q: %w", name, err)
	}
	a.call.failure, a.call.tooEarly = err, false
	a.setRefusal(nil) // whether the lock is still held is unknown
	return a.sleep(a.claim.poll.Next())
}

// noteRefusal records the refusal for the other callers of this process, and makes this caller a
// waiter. It fails if this caller does not wait, or not any longer.
func (a *asker) noteRefusal(refusal *driver.HeldError) error {
	a.call.noteAnswer()
	a.state().Refused(a.call.client.clock.NoLaterThanNow(), refusal.Holder, refusal.Token)
	a.setRefusal(refusal)
	if deadline.Passed(a.call.ctx) != nil {
		return a.giveUp()
	}
	if !a.call.startWaiting() {
		return refusal
	}
	return nil
}

// setRefusal records what the store said to the last attempt, nil if nothing, also for the other callers
// of this process.
func (a *asker) setRefusal(refusal *driver.HeldError) {
	a.claim.refusal, a.claim.due = refusal, 0
	switch {
	case a.slot == nil:
	case refusal == nil:
		a.slot.Update(func(o *occupant) { o.refusal = nil })
	default:
		a.slot.Announce(func(o *occupant) { o.refusal, o.silent = refusal, false })
	}
}

// awaitRelease blocks until the holder that refused the claim may have released the lock. The
// first time it subscribes, reports that it did, and returns at once, because the lock may have
// been released before the subscription.
func (a *asker) awaitRelease() (subscribed bool, err error) {
	c, cl, state := a.call.client, &a.claim, a.state()
	switch {
	case c.watcher == nil:
		return false, a.sleep(cl.pollDelay(state))
	case cl.refusal.Silent:
		return false, a.sleep(min(cl.pollDelay(state), backoff.Jitter(maxSilentPoll)))
	case cl.unwatch != nil:
		if delay := cl.contendedDelay(state); delay > 0 {
			return false, a.sleep(delay)
		}
		if err := a.sleepWatched(); err != nil || cl.alwaysQueues() {
			return false, err
		}
		return false, a.sleep(state.YieldAfterWake(c.clock.NoLaterThanNow(), &c.slices))
	case a.subscribe() != nil:
		return false, a.sleep(cl.pollDelay(state)) // and subscribe later
	}
	return true, nil
}

func (a *asker) subscribe() error {
	if err := a.beginRequest(); err != nil {
		return err
	}
	err := a.claim.subscribe(a.call.ctx)
	a.endRequest(err)
	return err
}

// sleepWatched blocks until another attempt of a waiter that has a subscription is worth it.
func (a *asker) sleepWatched() error {
	for n := 1; ; n++ {
		delay := a.claim.watchDelay()
		woken, err := a.sleepUntilWoken(delay)
		if err != nil || woken || n == restInCrowd || !a.restsInCrowd(delay) {
			return err
		}
	}
}

// sleep blocks until the waiter is woken, but no longer than limit.
func (a *asker) sleep(limit time.Duration) error {
	_, err := a.sleepUntilWoken(limit)
	return err
}

func (a *asker) sleepUntilWoken(limit time.Duration) (woken bool, err error) {
	if limit <= 0 {
		return false, nil
	}
	a.claim.due = a.call.client.clock.NoLaterThanNow() + limit
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.claim.wake:
		a.claim.due = 0
		return true, nil
	case <-timer.C:
		a.claim.due = 0
		return false, nil
	case <-a.call.client.calls.closing:
		return false, ErrClosed
	case <-a.call.ctx.Done():
		return false, a.giveUp()
	}
}

// giveUp returns the error of a wait whose context is done.
func (a *asker) giveUp() error { return a.call.giveUpError(a.claim.name, a.claim.refusal) }

// maxShortPause is the longest pause of a caller that does not wait, or for less than the pause.
const maxShortPause = 100 * time.Millisecond

// pauseBeforeTaking returns the pause that a makes at the end of a time slice, so that other
// processes can try. It is zero inside a slice.
func (a *asker) pauseBeforeTaking(now clock.Instant) time.Duration {
	if a.claim.settings.mode.Shared {
		return 0
	}
	c := a.call.client
	pause := a.state().PauseBeforeTaking(now, &c.slices)
	if pause <= 0 {
		return 0
	}
	s := a.call.settings
	short := !s.waits() || s.wait > 0 && !a.call.isWaiter && s.wait < pause
	if ends, limited := a.call.ctx.Deadline(); limited && time.Until(ends) < pause {
		short = true
	}
	if short && pause > maxShortPause {
		a.state().ShortenPause(now + maxShortPause)
		pause = maxShortPause
	}
	return pause
}

// pause lets other processes try before a does. This process waits for no answer of the store meanwhile.
func (a *asker) pause(now clock.Instant) error {
	pause := a.pauseBeforeTaking(now)
	if pause <= 0 {
		return nil
	}
	a.entered = 0
	a.setPausing(true)
	err := a.sleep(pause)
	a.call.notePause(pause)
	a.setPausing(false)
	return err
}

// setPausing tells the other callers of this process. They wait for the store all the same if it has not
// answered the release before. The attempt follows the pause.
func (a *asker) setPausing(begins bool) {
	now, pausing := a.call.client.clock.NoLaterThanNow(), begins && (!a.waitedLocally || a.state().Answers())
	a.slot.Update(func(o *occupant) { o.pausing, o.asked = pausing, now })
}
