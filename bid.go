package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/deadline"
)

// bid is one name of a call on its way to a tenure. It lives on the stack of the call: no other
// goroutine refers to it.
type bid struct {
	asker
	callerCtx context.Context // whose values the lease's context has
	outer     *tenure         // that encloses the new one; may be nil
	tenure    *tenure         // that it has got; nil before that
	beside    int             // how often a TryLock found that another caller got a grant beside which it may have one
	inBatch   bool            // one of several names that the store grants in one step
}

// initBid prepares a bid in place, which is faster than to copy one.
func initBid(b *bid, ctx context.Context, c *Client, s *settings, name string, outer *tenure) {
	b.call.client, b.call.settings, b.call.ctx = c, s, ctx
	b.claim.init(c, name, s)
	b.callerCtx, b.outer = ctx, outer
}

// attempt makes one attempt, and begins what the store grants.
func (b *bid) attempt() error {
	if err := b.beginRequest(); err != nil {
		return err
	}
	if b.claim.grant == nil && b.knowsFairWaiters() {
		b.claim.queued = true // an attempt that is not fair would pass them
	}
	sent := b.entered
	b.entered = 0
	if sent == 0 {
		sent = b.call.client.clock.NoLaterThanNow()
		if b.slot != nil {
			b.slot.Update(func(o *occupant) { o.asked = sent })
		}
	}
	err := b.claim.attempt(b.call.ctx, sent, b.call.timeLeft())
	b.endRequest(err)
	if err == nil {
		err = b.begin(sent)
	}
	return err
}

// begin attaches the first tenure to the grant that b asked for, which is renewed from then on. If the
// grant is shared, the shared callers at the head of the local queue get one each.
func (b *bid) begin(sent clock.Instant) error {
	c, g, slot := b.call.client, b.claim.grant, b.slot
	if slot != nil {
		slot.State.Taken(sent, &c.slices)
		if b.claim.refusal == nil {
			slot.State.fairWaiters = false
		}
		if !c.traits.Local { // nothing waits for the answer of a local store
			slot.State.Answered(c.clock.NoLaterThanNow())
		}
	}
	t := b.claim.first
	t.callerCtx, t.outer = b.callerCtx, b.outer
	c.watchdog.Watch(&g.Hold, sent)
	var began bool
	if slot == nil {
		began = g.attach(t, nil)
	} else {
		slot.Announce(func(o *occupant) { // in one step: the grant may end at once
			if began = g.attach(t, slot); began {
				o.grant = g
			}
		})
	}
	if !began {
		c.watchdog.Forget(&g.Hold)
		cause := g.status().cause
		if cause != nil { // while no tenure was attached: only the bid releases it
			b.claim.startAnew()
		}
		if errors.Is(cause, ErrClosed) {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w before the lease began; trying again may help", ErrUnreachable, cmp.Or(cause, errRevoked))
	}
	b.tenure = t
	if slot != nil && g.settings.mode != (driver.Mode{}) {
		c.offer(g)
		b.leaveSlot() // the store admits other holders
	}
	b.slot = nil // an exclusive grant has it now
	return nil
}

// errEndedEarly tells a call to try again: what it got ended before the call had it.
var errEndedEarly = errors.New("ended before the call returned")

// deliver makes b's tenure the caller's. If it has ended meanwhile, b tries again.
func (b *bid) deliver() error {
	t, c := b.tenure, b.call.client
	if b.claim.grant != t.grant { // from another caller, perhaps a while ago
		t.grant.expireIfOverdue()
	}
	err := c.deliver(t)
	if err == nil {
		return nil
	}
	t.giveBack()
	b.tenure = nil
	b.claim.spent()
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	if cause := context.Cause(b.call.ctx); cause != nil {
		return fmt.Errorf("locking %q: %w: %w", b.claim.name, cause, err)
	}
	b.call.noteAnswer()
	b.ownState.Answered(c.clock.NoLaterThanNow())
	return errEndedEarly
}

// report calls the hooks at the end of an acquisition, and returns err.
func (b *bid) report(err error) error {
	hooks := &b.call.client.hooks
	if !hooks.tellOfStart() {
		return err
	}
	event := Event{Name: b.claim.name, Waited: b.call.timeWaited(), Err: err}
	if err == nil {
		event.Token = b.tenure.token
	}
	if b.call.isWaiter {
		notify(hooks.Waited, event)
	}
	if err == nil {
		defer b.tenure.noteAcquired() // also if the hook panics
		notify(hooks.Acquired, event)
	}
	return err
}

func (b *bid) occupant(asked clock.Instant) occupant {
	s := b.claim.settings
	return occupant{mode: s.mode, waits: s.waits(), asked: asked}
}

// leaveSlot admits the next caller of this process.
func (b *bid) leaveSlot() {
	slot := b.slot
	if slot == nil {
		return
	}
	b.slot = nil
	now := b.call.client.clock.NoLaterThanNow()
	slot.State.ForgetPause(now) // a grant or a refusal ends the pause
	if b.tenure == nil && b.claim.refusal != nil {
		slot.Update(func(o *occupant) { o.gaveUp = now })
	}
	slot.Leave(b.tenure != nil || b.claim.refusal != nil)
}

// abandon ends a bid whose call fails. It passes the claim on, or undoes attempts of unknown outcome and
// gives up a place in the store's queue.
func (b *bid) abandon() {
	switch {
	case b.pass():
	case b.claim.needsUndo:
		b.claim.undo(b.slot)
		b.slot = nil
		b.claim.spent()
	default:
		b.leaveSlot()
	}
}

// pass leaves the claim of a caller whose time has ended to the next caller, if it fits: its place in the
// store's queue and its subscription. So callers with little time cost the store what a patient one does.
// A caller that fails for another reason does not pass its claim, because the next one would meet the same
// failure. Nor does a caller that the store has not answered, because the callers behind it would wait for
// two answers.
func (b *bid) pass() bool {
	c := b.call.client
	switch {
	case b.slot == nil, b.inBatch, b.claim.grant == nil, b.claim.refusal == nil:
		return false
	case deadline.Passed(b.call.ctx) == nil, c.calls.closed.Load():
		return false
	}
	s, now := b.claim.settings, c.clock.NoLaterThanNow()
	b.slot.State.ForgetPause(now)
	b.slot.Update(func(o *occupant) { o.gaveUp = now })
	passed := b.slot.LeaveTo(true, func(next *waiter) bool {
		if !next.accepts || !s.mayShareGrant(next.settings) {
			return false
		}
		left := b.claim
		b.slot.State.passed = &left
		return true
	})
	if passed {
		name := b.claim.name
		b.slot, b.claim = nil, claim{}
		b.claim.init(c, name, s)
	}
	return passed
}

// undo releases in the background what the claim's owner has, and then leaves the slot, so that the next
// caller of this process does not find the lock held by this abandoned attempt. If the store does not
// answer, the next caller asks the store all the same, while undo goes on until the lock or the place
// expires. slot may be nil.
func (cl *claim) undo(slot *slot) {
	c, grant, refused := cl.client, cl.grant.Grant, cl.refusal != nil
	grant.Token = 0 // the owner alone decides
	now := c.clock.NoLaterThanNow()
	until := now + cl.settings.ttl
	if slot != nil {
		slot.Update(func(o *occupant) { o.gaveUp = now })
	}
	c.cleanups.Go(func() {
		_, err := c.releaseGrant(context.Background(), grant, c.clock.NoLaterThanNow()+c.requestTimeout)
		if slot != nil {
			if err != nil && !errors.Is(err, ErrNotHeld) {
				c.noteUnanswered(slot, err)
				slot.Update(func(o *occupant) { o.refusal = nil }) // whether the lock is still held is unknown
				refused = false
			} else {
				slot.State.OutageEnded()
			}
			slot.State.ForgetPause(c.clock.NoLaterThanNow())
			slot.Leave(refused)
		}
		if !isFinal(err) {
			err = c.repeatRelease(grant, until, err)
		}
		if err != nil && !errors.Is(err, ErrNotHeld) {
			c.logger.Warn("dlock: an attempt could not be undone and is left to expire", "name", grant.Name, "err", err)
		}
	})
}

// unlock unlocks what a call that fails or panics has got.
func (b *bid) unlock() {
	switch t := b.tenure; {
	case t == nil:
	case t.wasAcquired():
		_ = t.first.Unlock(context.Background()) // the call has an error of its own
	default: // another hook has panicked
		t.giveBack()
	}
}

func unlockAll(bids []bid) {
	var wg sync.WaitGroup
	for i := range bids {
		wg.Go(bids[i].unlock)
	}
	wg.Wait()
}
