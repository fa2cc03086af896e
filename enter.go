package dlock

import (
	"fmt"
	"time"
)

// enter blocks until b occupies the slot of its name, or another caller of this process has attached b
// to its grant. Callers of this process enter in the order of arrival.
func (b *bid) enter() error {
	c := b.call.client
	b.entered = 0
	for b.slot == nil && b.tenure == nil && b.beside < maxBeside {
		now := c.clock.NoLaterThanNow()
		slot, entered := c.queue.TryEnter(b.claim.name, b.occupant(now))
		var err error
		if entered {
			b.slot, b.entered = slot, now
			slot.State.ForgetOutage()    // what the last occupant knew may be old
			if b.call.storeHasAnswered { // what b was given ended before b had it
				slot.State.Answered(now)
			}
			if b.join() {
				return nil
			}
			err = b.pause(now)
		} else {
			err = b.queueBehind(slot)
		}
		if err != nil {
			b.abandon()
			return err
		}
	}
	switch {
	case b.tenure != nil:
	case c.calls.closed.Load():
		b.abandon()
		return ErrClosed
	default:
		b.join()
	}
	return nil
}

// maxBeside is how many grants of other callers, each announced twice, or refusals of sets because of other
// names a TryLock waits for before it asks the store without a slot: as long as callers wait for the slot, it
// would never get it.
const maxBeside = 8

// queueBehind queues b behind the occupant of the slot and the callers that came before, and blocks
// until b is the occupant or has a tenure. For a caller that does not want to wait, or wants the name
// with another limit, it blocks only until the occupant's attempt has an outcome. If it returns nil and b
// has neither, b tries to enter again.
func (b *bid) queueBehind(slot *slot) error {
	v := slot.View()
	if !v.Occupied {
		return nil
	}
	if !v.Occupant.sharesAttempt(b.claim.settings.mode) {
		b.call.startWaiting()
	}
	if !b.call.settings.waits() || v.Occupant.mode.Limit != b.claim.settings.mode.Limit {
		return b.awaitOutcome(slot)
	}
	c := b.call.client
	unasked := b.occupant(0) // attempt sets when b asks: the store is not silent for as long as b waits here
	place := c.queue.Wait(b.claim.name, unasked, func(w *waiter) {
		w.settings, w.accepts = b.claim.settings, !b.inBatch
		w.tenure.callerCtx, w.tenure.outer = b.callerCtx, b.outer
	})
	if err := b.awaitAdmission(slot, place); err != nil {
		return err
	}
	b.waitedLocally = true
	b.slot = place.Slot()
	if b.slot == nil {
		b.tenure = &place.Waiter.tenure
		return nil
	}
	b.inherit()
	if b.call.ctx.Err() != nil {
		if b.claim.refusal == nil { // otherwise the store is not silent
			b.call.noteNoOutcome(b.claim.name, &b.slot.State)
		}
		return b.giveUp()
	}
	if err := b.learnFrom(b.slot); err != nil {
		return err
	}
	return b.pause(c.clock.NoLaterThanNow())
}

// awaitAdmission blocks until b is admitted, or gives up its place. If the lock is not known to be held,
// it waits for the occupant's outcome for as long as this call may wait for an answer.
func (b *bid) awaitAdmission(slot *slot, place *ticket) error {
	c := b.call.client
	var due <-chan time.Time
	var announced chan struct{}
	var notice *notice
	v := slot.View()
	if c.traits.Local || v.Occupant.heldError() != nil {
		b.call.storeHasAnswered = true
	} else {
		due = time.After(b.call.timeForAnswer())
	}
	if due != nil || !b.call.isWaiter {
		v, notice = slot.Watch()
		announced = notice.Done
		if !v.Occupant.sharesAttempt(b.claim.settings.mode) {
			b.call.startWaiting()
		}
	}
	for {
		select {
		case <-place.Admitted():
			return nil
		case <-announced:
			due, announced = nil, nil
			if b.call.isWaiter {
				continue
			}
			select {
			case <-place.Admitted():
				return nil
			default:
			}
			said := notice.Said.Occupant
			var now view
			now, notice = slot.Watch()
			sharesAttempt := now.Occupied && now.Turn == v.Turn && said.mode.Shared && said.grant != nil
			if !sharesAttempt { // b has shared the first attempt of one occupant
				b.call.startWaiting()
				continue
			}
			announced = notice.Done
		case <-due:
			due = nil
			now := c.queue.View(b.claim.name)
			unknown := now.Occupied && now.Turn == v.Turn && now.Occupant.heldError() == nil
			switch {
			case unknown && now.Occupant.pausing:
				due = b.call.waitForAnswerAgain()
			case unknown && place.Leave():
				return b.call.unanswered(b.claim.name)
			}
		case <-b.call.ctx.Done():
			if !place.Leave() { // it was admitted at this very moment
				<-place.Admitted()
				return nil
			}
			b.call.noteNoOutcome(b.claim.name, nil)
			return b.giveUp()
		}
	}
}

// learnFrom takes over what the callers before b have learned about the store. It returns an error
// if they have found an outage that is not worth waiting for.
func (b *bid) learnFrom(slot *slot) error {
	if err := slot.State.OutageTooLong(b.call.client.clock.NoLaterThanNow(), b.call.settings.ttl); err != nil {
		return fmt.Errorf("locking %q: %w", b.claim.name, err)
	}
	b.call.failure = nil
	if b.call.isWaiter && (slot.State.Answers() || slot.State.AnsweredAfter(b.call.waitingSince)) {
		b.call.noteAnswer()
	}
	return nil
}

// awaitOutcome blocks until the occupant's attempt has an outcome. It returns why b cannot
// have the lock, or nil to try again.
func (b *bid) awaitOutcome(slot *slot) error {
	name, wanted := b.claim.name, b.claim.settings.mode
	v, notice := slot.Watch()
	if !v.Occupied {
		return nil
	}
	if err := v.Occupant.excludes(name, wanted); err != nil {
		return err
	}
	due := time.After(b.call.timeForAnswer())
	for {
		select {
		case <-notice.Done:
			o := notice.Said.Occupant
			err := o.excludes(name, wanted) // one refusal answers all callers that waited for it
			if err == nil && (o.answered || o.heldError() != nil) && !b.inBatch {
				b.call.noteAnswer()
				b.beside++
			}
			return err
		case <-due:
			if now := b.call.client.queue.View(name); !now.Occupied || !now.Occupant.pausing {
				return b.call.unanswered(name)
			}
			due = b.call.waitForAnswerAgain()
		case <-b.call.client.calls.closing:
			return ErrClosed
		case <-b.call.ctx.Done():
			b.call.noteNoOutcome(name, nil)
			return b.giveUp()
		}
	}
}

// join shares the grant that an earlier occupant of the slot left. If it does, b leaves the slot.
func (b *bid) join() bool {
	c := b.call.client
	if b.claim.grant != nil || !b.claim.settings.mode.Shared {
		return false
	}
	found, _ := c.shared.Load(b.claim.name)
	g, _ := found.(*grant)
	if g == nil || c.clock.Now()-g.takenAt >= joinTime {
		return false
	}
	t := &tenure{callerCtx: b.callerCtx, outer: b.outer}
	if !g.share(t, b.claim.settings) {
		return false
	}
	b.tenure = t
	c.serveShared(g)
	b.leaveSlot()
	return true
}

// inherit takes over the claim that the occupant before b left.
func (b *bid) inherit() {
	left := b.slot.State.passed
	if left == nil {
		return
	}
	b.slot.State.passed = nil
	s := b.claim.settings
	b.claim = *left
	b.claim.settings, b.claim.grant.settings = s, s
	if refusal := b.claim.refusal; refusal != nil {
		b.slot.Announce(func(o *occupant) { o.refusal = refusal })
	}
}

// restOut goes on with a claim that the caller before passed on. As that caller would have, it waits until
// another attempt is due. Otherwise callers with little time would put the attempt off for ever.
func (b *bid) restOut() error {
	if b.claim.due == 0 {
		return nil
	}
	b.call.storeHasAnswered = true
	b.call.startWaiting()
	return b.sleep(b.claim.due - b.call.client.clock.NoLaterThanNow())
}
