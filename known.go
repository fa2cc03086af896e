package dlock

import (
	"cmp"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/localqueue"
)

type (
	slot   = localqueue.Slot[waiter, occupant, queueState]
	ticket = localqueue.Ticket[waiter, occupant, queueState]
	view   = localqueue.View[occupant]
	notice = localqueue.Notice[occupant]
)

// queueState is what a caller leaves to its successor in the local queue.
type queueState struct {
	contention.State
	fairWaiters bool   // of any process have places in the store, as far as known
	passed      *claim // of the last occupant, which gave up; the next one goes on with it
}

// waiter is what a caller leaves with its place in the local queue, so that another one can give it a
// tenure.
type waiter struct {
	settings *settings
	accepts  bool // not one name of several
	tenure   tenure
}

// occupant is what the other callers of a process may know of the one that occupies a slot.
type occupant struct {
	mode     driver.Mode
	waits    bool
	pausing  bool              // for other processes, before it has asked the store for anything
	silent   bool              // the last attempt failed because the store did not answer
	answered bool              // the store refused an attempt because of another name of a set
	asked    clock.Instant     // when it came, or when the last attempt was sent
	gaveUp   clock.Instant     // when its attempts were given up; zero before that
	refusal  *driver.HeldError // of its last attempt, if the store has answered it
	grant    *grant            // that it has got
}

// heldError describes the lock that the occupant has or waits for, to another caller of the process. It
// returns nil if the store has not said yet that the lock is held.
func (o *occupant) heldError() *driver.HeldError {
	if o.grant == nil {
		return o.refusal
	}
	if st := o.grant.status(); st.held {
		return o.describe(&st)
	}
	return nil // the outcome of the release is not known yet
}

// describe describes the lock that the occupant has.
func (o *occupant) describe(st *status) *driver.HeldError {
	g := o.grant
	left := g.TrustDeadline() - g.client.clock.NoLaterThanNow()
	return &driver.HeldError{Name: g.name(), Mode: st.mode, Token: st.token,
		Holder: g.settings.holder, Remaining: max(0, left)}
}

// sharesAttempt reports whether o's attempt, whose outcome is not known yet, is that of a caller with mode, too:
// the first attempt of a shared caller is that of all.
func (o *occupant) sharesAttempt(mode driver.Mode) bool {
	return mode.Shared && o.mode.Shared && o.heldError() == nil
}

// excludes returns why a caller with wanted cannot have the lock while o occupies the slot, or nil if
// that is not known. A grant that the caller can share, or have another one beside, does not exclude it:
// the occupant is about to leave the slot. An exclusive occupant that shared holders refused excludes
// shared callers only if it waits, because only then it has a place in the store.
func (o *occupant) excludes(name string, wanted driver.Mode) error {
	held := o.heldError()
	switch {
	case held == nil:
		return nil
	case o.mode.Limit != wanted.Limit:
		return &driver.ModeError{Name: name, Mode: o.mode}
	case o.grant != nil && o.mode == wanted && wanted != (driver.Mode{}):
		return nil
	case held.Mode.Shared && wanted.Shared && !o.mode.Shared && !o.waits:
		return nil
	}
	return held
}

// unansweredSince returns when the occupant began the call of unknown outcome that is under way.
func (o *occupant) unansweredSince() clock.Instant {
	if g := o.grant; g != nil {
		return g.status().ended // its release; zero if that has not begun
	}
	return cmp.Or(o.gaveUp, o.asked) // an undo follows
}

// maxHolderAge is how long ago the store may have named the holder of recentHolder.
const maxHolderAge = 250 * time.Millisecond

// recentHolder describes o if it has the lock or has just released it, or else the holder that o has
// just given up waiting for. It returns nil if the lock was lost, or may not exclude wanted.
func (o *occupant) recentHolder(now clock.Instant, wanted driver.Mode) *driver.HeldError {
	since, held, mode := o.gaveUp, o.refusal, o.mode
	var st status
	if g := o.grant; g != nil {
		st = g.status()
		held, since, mode = o.describe(&st), cmp.Or(st.ended, g.LastSent()), st.mode
	}
	switch {
	case held == nil || since == 0 || now-since >= maxHolderAge || errors.Is(st.cause, ErrLost):
		return nil
	case mode.Limit != wanted.Limit || held.Mode.Shared && wanted.Shared:
		return nil
	}
	return held
}
