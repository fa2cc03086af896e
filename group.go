package dlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/localqueue"
)

// group is a set of shared holds of one process that share one grant, so that many readers cost
// the store as much as one. Its leader is a hold without a lease: it asks the store in its own
// goroutine, has the grant, and is renewed. The members are the holds with a lease. Each has one
// token of the grant.
//
// A caller joins a group that waits for its grant if the leader is the last of the local queue. It
// joins a group that has its grant if the slot is free and the grant is younger than joinTime:
// otherwise exclusive callers of other processes, which wait in the store, would starve.
type group struct {
	leader     *hold
	cancelLead context.CancelCauseFunc // ends the attempts of the leader
	decided    chan struct{}           // closed when the leader has the grant, or has failed
	ended      []*hold                 // the members that ended with the leader; set by end

	// The leader's mutex guards the fields below.
	pending []*hold            // callers that wait for the grant, in order of arrival
	members map[*hold]struct{} // holds that have a token
	open    bool               // callers may join
	used    uint64             // tokens of the grant; zero before there is one
	began   clock.Instant      // when the grant was asked for
	err     error              // why the leader has failed
}

// joinTime is how long callers may join a group that has its grant.
const joinTime = 50 * time.Millisecond

var (
	// errGroupEnded tells a caller that it is not a member, because its group had no token for it,
	// was lost or was withdrawn. The caller tries again.
	errGroupEnded = errors.New("the group has ended")
	errAbandoned  = errors.New("no caller waits any more")
)

// acquireShared takes a shared lock for m as a member of a group.
func (lc *lockCall) acquireShared(m *hold) error {
	for {
		callers := lc.client.queue.Callers(m.name)
		occupant, last := callers.Occupant, callers.Last
		if occupant != nil && occupant.settings.mode.Limit > 0 {
			if err := lc.queueBehind(occupant, m); err != nil {
				return err
			}
			continue
		}
		before := lc.client.openGroup(m.name) // which m may join if the slot is free
		if last != nil {
			before = last.group
		}
		g := lc.client.joinOrBegin(m, before, last)
		if g == nil {
			continue // another caller has entered the queue, and m may join its group
		}
		err := lc.awaitDecision(g, m)
		if errors.Is(err, errGroupEnded) {
			continue
		}
		if err != nil {
			g.abandonMember(m)
		}
		return err
	}
}

// joinOrBegin makes m a member of before, or of a new group behind last, which is the last caller of
// the local queue. It returns nil if another caller has entered the queue.
func (c *Client) joinOrBegin(m *hold, before *group, last *hold) *group {
	if before.join(m) {
		return before
	}
	g := c.newGroup(m)
	ticket := c.queue.Push(m.name, g.leader, last)
	if ticket == nil {
		return nil
	}
	if last == nil { // the slot is free, so a group that began meanwhile may have its grant
		if latest := c.openGroup(m.name); latest != before && latest.join(m) {
			g.withdraw(ticket)
			return latest
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(m.callerCtx))
	g.cancelLead = cancel
	c.calls.add()
	go func() {
		defer c.calls.end()
		defer cancel(nil)
		g.decide(g.lead(ctx, ticket, last != nil))
	}()
	return g
}

func (c *Client) newGroup(m *hold) *group {
	s := *m.settings
	if s.waits() {
		s.wait = -1 // callers have limits of their own
	}
	h := c.newHold(context.Background(), m.name, &s, nil)
	h.group = &group{leader: h, decided: make(chan struct{}),
		pending: []*hold{m}, members: make(map[*hold]struct{}), open: true}
	return h.group
}

// lead waits for the slot and asks the store for the grant. queued says that the slot was not
// free. lead fails when all callers have left.
func (g *group) lead(ctx context.Context, ticket *localqueue.Ticket[hold, queueState], queued bool) error {
	h := g.leader
	lc := lockCall{client: h.client, settings: h.settings, ctx: ctx}
	defer lc.stopWaiting()
	if queued && lc.startWaiting() {
		lc.storeHasAnswered = g.occupantAhead().heldError() != nil
	}
	slot, err := ticket.Wait(ctx)
	if err != nil {
		return err
	}
	h.slot.Store(slot)
	switch {
	case h.client.calls.closed.Load():
		err = ErrClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case queued:
		err = lc.learnFrom(h, slot)
	default:
		slot.State.ForgetOutage() // what the last occupant knew may be old
	}
	if err != nil {
		h.leaveSlot()
		return err
	}
	return lc.attemptUntilGranted(h)
}

// withdraw ends a group that has just entered a free slot. Its callers try again.
func (g *group) withdraw(ticket *localqueue.Ticket[hold, queueState]) {
	slot, _ := ticket.Wait(context.Background()) // returns at once
	g.leader.slot.Store(slot)
	g.leader.leaveSlot()
	g.decide(errGroupEnded)
}

// join makes m a member, or lets it wait for the grant. It reports whether it did. g may be nil.
func (g *group) join(m *hold) bool {
	if g == nil || !m.settings.mayShareGrant(g.leader.settings) {
		return false
	}
	h := g.leader
	h.mu.Lock()
	defer h.mu.Unlock()
	g.closeIfDueLocked()
	switch {
	case !g.open || h.cause != nil:
		return false
	case g.used > 0:
		g.admitLocked(m)
	case m.settings.waits() && !h.settings.waits():
		return false // the leader makes one attempt
	default:
		g.pending = append(g.pending, m)
	}
	return true
}

// closeIfDueLocked closes a group that has had its grant for long, or has no token left.
func (g *group) closeIfDueLocked() {
	if g.used == 0 {
		return
	}
	h := g.leader
	now := h.client.clock.Now()
	if now-g.began >= joinTime || h.TrustDeadline()-now < h.Grant.TTL/2 || !g.tokensLeft() {
		g.open = false
	}
}

func (g *group) tokensLeft() bool { return g.used < g.leader.client.traits.TokenStep }

// admitLocked gives m the next token of the grant.
func (g *group) admitLocked(m *hold) {
	m.leader, m.leases = g.leader, 1
	m.token = g.leader.Grant.Token + g.used
	g.used++
	g.members[m] = struct{}{}
}

// decide makes the callers that wait members, as many as the grant has tokens for. If the leader
// has no grant, err says why, and all callers fail.
func (g *group) decide(err error) {
	h := g.leader
	h.mu.Lock()
	unused, lost := false, false
	switch {
	case err != nil:
	case errors.Is(h.cause, ErrClosed):
		err = ErrClosed
	case h.cause != nil: // the leader was lost before there was a member
		err, lost = errGroupEnded, true
	}
	g.err = err
	if err == nil {
		for _, m := range g.pending {
			if g.tokensLeft() {
				g.admitLocked(m)
			}
		}
		g.began = h.lastSent()
		if g.used > 0 {
			h.client.groups.Store(h.name, g)
			h.leaveSlot()
		} else { // every caller has left
			unused = h.endLocked(ErrReleased)
		}
	}
	g.open = g.used > 0
	g.pending = nil
	close(g.decided)
	h.mu.Unlock()
	if unused {
		_ = h.releaseOrHandOver(context.Background()) // and leaves the slot; no caller waits for the outcome
	}
	if lost {
		h.releaseLost()
	}
}

// remove removes m, which is a member or a caller that waits for the grant. The last caller ends
// the attempts of the leader. For a member it returns whether it was the last one, and why the
// leader had ended before, or nil.
func (g *group) remove(m *hold) (last bool, cause error) {
	h := g.leader
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(g.pending, m); i >= 0 {
		if g.pending = slices.Delete(g.pending, i, i+1); len(g.pending) == 0 {
			g.open = false
			g.cancelLead(errAbandoned)
		}
		return false, nil
	}
	if _, member := g.members[m]; !member {
		return false, nil
	}
	delete(g.members, m)
	cause = h.cause
	if len(g.members) > 0 {
		return false, cause
	}
	h.endLocked(ErrReleased)
	g.open = false
	h.client.groups.CompareAndDelete(h.name, g)
	return true, cause
}

// unlockMember removes a member that was unlocked. The last one releases the lock.
func (g *group) unlockMember(ctx context.Context, m *hold) error {
	h := g.leader
	last, cause := g.remove(m)
	switch {
	case last && cause == nil:
		return h.releaseOrHandOver(ctx)
	case last:
		h.releaseLost()
	}
	return h.notHeld(cause)
}

// abandonMember removes a caller whose call fails. If it has just become the last member, the lock is
// released in the background: the caller waits no longer.
func (g *group) abandonMember(m *hold) {
	h := g.leader
	switch last, cause := g.remove(m); {
	case last && cause == nil:
		h.client.cleanups.Go(func() { _ = h.releaseOrHandOver(context.Background()) }) // the call has an error of its own
	case last:
		h.releaseLost()
	}
}

// end ends the members of a leader that was lost or closed. g may be nil.
func (g *group) end(cause error) {
	if g == nil {
		return
	}
	h := g.leader
	h.mu.Lock()
	members := slices.Collect(maps.Keys(g.members))
	g.open = false
	h.client.groups.CompareAndDelete(h.name, g)
	h.mu.Unlock()
	for _, m := range members {
		if m.end(cause) {
			g.ended = append(g.ended, m)
		}
	}
}

// leaderOrSelf returns the hold that has the grant of h: the leader of its group, or h itself.
func (h *hold) leaderOrSelf() *hold {
	if h.leader != nil {
		return h.leader
	}
	return h
}

// endedBy returns the holds with leases that ended when h did: the members of g or, if g is nil
// because h is no leader, h itself.
func (g *group) endedBy(h *hold) []*hold {
	if g == nil {
		return []*hold{h}
	}
	return g.ended
}

// openGroup returns the group of name that has a grant and may be open, or nil.
func (c *Client) openGroup(name string) *group {
	found, _ := c.groups.Load(name)
	g, _ := found.(*group)
	return g
}
