package dlock

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// awaitDecision blocks until m is a member of g, or g has failed. If g has no token for m, the
// error is errGroupEnded. For a caller that does not want to wait, it returns the holder as
// soon as one is known.
func (lc *lockCall) awaitDecision(g *group, m *hold) error {
	select {
	case <-g.decided:
		return g.result(m)
	default:
	}
	for {
		ahead := g.occupantAhead()
		announced, announcedAhead := g.leader.nextOutcome(), ahead.nextOutcome()
		if g.occupantAhead() != ahead {
			continue
		}
		blocked := g.blocked(ahead)
		held, _ := errors.AsType[*driver.HeldError](blocked)
		lc.storeHasAnswered = lc.storeHasAnswered || held != nil
		if blocked != nil && held == nil {
			return blocked // the name is in use in another mode
		}
		if held != nil || ahead != nil {
			if waits := lc.startWaiting(); !waits && held != nil {
				return held
			}
		}
		var due <-chan time.Time                             // when the store has not answered for too long
		if !lc.storeHasAnswered && !lc.client.traits.Local { // otherwise the leader decides
			due = time.After(lc.timeForAnswer())
		}
		select {
		case <-g.decided:
			return g.result(m)
		case <-announced:
		case <-announcedAhead:
		case <-due:
			return lc.unanswered(m)
		case <-lc.ctx.Done():
			lc.noteNoOutcome(m)
			return lc.giveUpError(m, nil)
		}
		if lc.settings.waits() { // an outcome gives the next attempt its own time
			lc.answerBy = time.Time{}
		}
	}
}

// result returns nil if m is a member, and otherwise why it is not.
func (g *group) result(m *hold) error {
	g.leader.mu.Lock()
	defer g.leader.mu.Unlock()
	if g.err == nil && m.leader != g.leader {
		return errGroupEnded
	}
	return g.err
}

// occupantAhead returns the occupant of the slot while the leader waits for the slot, or nil.
func (g *group) occupantAhead() *hold {
	h := g.leader
	if h.slot.Load() != nil {
		return nil
	}
	if occupant := h.client.queue.Callers(h.name).Occupant; occupant != h {
		return occupant
	}
	return nil
}

// nextOutcome returns a channel that is closed when an outcome of h is announced next. It is nil
// for a nil h.
func (h *hold) nextOutcome() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.outcome.next()
}

// blocked returns what keeps the group from its grant, or nil if it is not known. ahead may be nil.
func (g *group) blocked(ahead *hold) error {
	h := g.leader
	switch refusal := h.refusal.Load(); {
	case h.wasGranted():
		return nil
	case ahead != nil:
		return ahead.excludes(h)
	case refusal != nil:
		return refusal
	}
	return nil
}
