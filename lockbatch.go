package dlock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// batch is a LockAll that acquires all names in one step. It waits for one name at a time, and occupies
// no other slot meanwhile, so that no caller waits for a name that is not held. Only while the store does
// not answer does it keep all slots, for up to a TTL.
type batch struct {
	bids         []bid
	blocking     *bid // its name is the one that is waited for; it has the call
	subscribedTo *bid // its name is the one of the subscription
	triedAtOnce  bool // the last attempt followed a subscription, without a sleep
	over         bool // some grants were given back: there is no other attempt
}

// acquireBatch acquires all bids in one step of the store. If the names are to be acquired in order
// instead, it has acquired none, and returns how long the call has waited so far.
func acquireBatch(bids []bid) (inOrder bool, waited time.Duration, err error) {
	for i := range bids {
		bids[i].inBatch = true
	}
	b := &batch{bids: bids, blocking: &bids[0]}
	defer b.stop()
	for {
		err := b.enterAll()
		if err == nil {
			err = b.attempt()
			switch {
			case err == nil:
				b.report()
				return false, 0, nil
			case err == errEndedEarly: //nolint:errorlint // never wrapped
				b.blocking.call.noteAnswer()
				continue
			case errors.Is(err, ErrUnsupported), b.shouldQueue(err):
				return true, b.fallBack(), nil
			}
			err = b.beforeRetry(err)
		}
		if err != nil {
			for i := range bids {
				bids[i].abandon()
			}
			return false, 0, b.blocking.report(err)
		}
	}
}

// fallBack gives up the attempt for all names, and returns how long the call has waited.
func (b *batch) fallBack() (waited time.Duration) {
	b.blocking.call.stopWaiting()
	b.leaveAllBut(nil)
	for i := range b.bids {
		b.bids[i].claim.startAnew() // acquireInOrder may never come to this one
		b.bids[i].claim.refusal = nil
	}
	return b.blocking.call.timeWaited()
}

// stop frees what the waiting needed.
func (b *batch) stop() {
	b.blocking.call.stopWaiting()
	for i := range b.bids {
		b.bids[i].claim.unsubscribe()
	}
}

// report calls the hooks of all names.
func (b *batch) report() {
	c := b.blocking.call
	for i := range b.bids {
		b.bids[i].call = c
		_ = b.bids[i].report(nil)
	}
}

// blockOn makes the call wait for the name of one, which gets the call.
func (b *batch) blockOn(one *bid) {
	if one != b.blocking {
		one.call, b.blocking = b.blocking.call, one
	}
}

// enterAll makes the bids the occupants of all slots. It pauses once for all of them.
func (b *batch) enterAll() error {
	for i := 0; i < len(b.bids); i++ {
		one := &b.bids[i]
		if one.slot != nil {
			continue
		}
		c := one.call.client
		slot, entered := c.queue.TryEnter(one.claim.name, one.occupant(c.clock.NoLaterThanNow()))
		if !entered {
			b.leaveAllBut(nil)
			b.blockOn(one)
			if err := one.queueBehind(slot); err != nil {
				return err
			}
			i = -1 // again from the first name
			continue
		}
		slot.State.ForgetOutage() // what the last occupant knew may be old
		one.slot = slot
	}
	return b.pause()
}

// pause lets other processes try first. The call makes the longest pause that is due.
func (b *batch) pause() error {
	longest, pause := b.blocking, time.Duration(0)
	now := longest.call.client.clock.NoLaterThanNow()
	for i := range b.bids {
		one := &b.bids[i]
		one.call = b.blocking.call
		if due := one.pauseBeforeTaking(now); due > pause {
			longest, pause = one, due
		}
	}
	if pause <= 0 {
		return nil
	}
	for i := range b.bids {
		b.bids[i].setPausing(true)
	}
	b.blockOn(longest)
	err := longest.sleep(pause)
	longest.call.notePause(pause)
	for i := range b.bids {
		b.bids[i].setPausing(false)
	}
	return err
}

// shouldQueue reports whether err is a refusal, and fair callers wait for one of the names: for the
// refused one as the store says, or for another one as callers of this process have found.
func (b *batch) shouldQueue(err error) bool {
	knows := func(one bid) bool { return one.knowsFairWaiters() }
	return b.blocking.claim.mayQueue(err) || errors.Is(err, ErrHeld) && slices.ContainsFunc(b.bids, knows)
}

func (b *batch) leaveAllBut(but *bid) {
	for i := range b.bids {
		if one := &b.bids[i]; one != but {
			one.leaveSlot()
		}
	}
}

// attempt asks the store once for all bids, and begins them.
func (b *batch) attempt() error {
	call := &b.blocking.call
	c := call.client
	if c.calls.closed.Load() {
		return ErrClosed
	}
	reqs := make([]driver.Request, len(b.bids))
	sent := c.clock.NoLaterThanNow()
	for i := range b.bids {
		one := &b.bids[i]
		reqs[i] = one.claim.attemptRequest()
		reqs[i].Queue = reqs[i].Queue && c.traits.Queues // a waiting LockAll reserves no name
		one.claim.asked = sent
		one.slot.Update(func(o *occupant) { o.asked = sent })
	}
	limited, timer := c.withTimeout(call.ctx, call.timeLeft())
	defer timer.End()
	sent = c.clock.NoLaterThanNow()
	grants, err := c.batcher.AcquireAll(limited, reqs)
	if err != nil {
		for i := range b.bids {
			b.bids[i].claim.noteFailure(reqs[i].Queue, err)
		}
		return c.explain(call.ctx, limited, err)
	}
	for i := range b.bids {
		err = errors.Join(err, b.bids[i].claim.accept(grants[i], sent))
	}
	if err != nil {
		return err
	}
	return b.begin(sent)
}

// begin begins the tenures of all names, and delivers all or none.
func (b *batch) begin(sent clock.Instant) error {
	tenures := make([]*tenure, len(b.bids))
	for i := range b.bids {
		one := &b.bids[i]
		if i > 0 {
			one.outer = tenures[i-1]
		}
		if err := one.begin(sent); err != nil {
			b.over = i > 0
			b.giveBack(b.bids[:i])
			return err
		}
		tenures[i] = one.tenure
	}
	err := b.blocking.call.client.deliver(tenures...)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ErrClosed):
		err = errEndedEarly
	}
	b.giveBack(b.bids)
	return err
}

// giveBack gives back what the call has got so far.
func (b *batch) giveBack(bids []bid) {
	var wg sync.WaitGroup
	for i := range bids {
		one := &bids[i]
		wg.Go(one.tenure.giveBack)
		one.claim.spent()
	}
	wg.Wait()
	for i := range bids {
		bids[i].tenure = nil
	}
}

// noteAnswer records for the callers behind that the store answers: the refusal names only one of the names.
func (b *batch) noteAnswer() {
	now := b.blocking.call.client.clock.NoLaterThanNow()
	for i := range b.bids {
		if slot := b.bids[i].slot; slot != nil {
			slot.State.Answered(now)
			slot.Update(func(o *occupant) { o.answered = true })
		}
	}
}

// beforeRetry blocks until the next attempt is worth it.
func (b *batch) beforeRetry(err error) error {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	switch {
	case b.over:
		return fmt.Errorf("locking %q: %w", b.blocking.claim.name, err)
	case !refused:
		return b.blocking.afterFailure(err)
	}
	one := &b.bids[max(0, slices.IndexFunc(b.bids, func(one bid) bool { return one.claim.name == refusal.Name }))]
	b.noteAnswer()
	b.leaveAllBut(one)
	b.blockOn(one)
	if one != b.subscribedTo {
		if b.subscribedTo != nil {
			b.subscribedTo.claim.unsubscribe()
		}
		b.subscribedTo = one
	}
	if err := one.noteRefusal(refusal); err != nil {
		return err
	}
	subscribed, err := one.awaitRelease()
	if subscribed && b.triedAtOnce { // a different name blocks each time
		b.triedAtOnce = false
		return one.sleep(one.claim.pollDelay(one.state()))
	}
	b.triedAtOnce = subscribed
	return err
}
