package dlock

import (
	"context"
	"time"
)

// A caller may get a tenure from another caller of the process, without a call to the store: it shares a
// shared grant, or an exclusive grant or a permit is handed over to it. The callers at the head of the
// local queue do, if their settings fit. The claim of a caller that gives up goes the same way: see pass.

// joinTime is how long a caller that comes later may share a grant, counted from when it was asked for:
// otherwise exclusive callers of other processes, which wait in the store, would starve.
const joinTime = 50 * time.Millisecond

// offer lets the shared callers at the head of the local queue share g, which is held, and callers
// that come within joinTime.
func (c *Client) offer(g *grant) {
	if !g.settings.mode.Shared {
		return
	}
	c.shared.Store(g.name(), g)
	c.serveShared(g)
}

func (c *Client) serveShared(g *grant) {
	c.queue.Serve(g.name(), int(c.traits.TokenStep), func(next *waiter) bool {
		return next.accepts && g.share(&next.tenure, next.settings)
	})
}

// share attaches a shared caller if it may share the grant.
func (g *grant) share(t *tenure, s *settings) bool {
	if !s.mayShareGrant(g.settings) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.TrustDeadline()-g.client.clock.Now() < g.Grant.TTL/2 {
		return false
	}
	return g.tenures != nil && g.attachLocked(t)
}

// handOver attaches the first caller in the local queue to a grant that is idle, and reports whether it
// did. The store is not asked, so a hand-over takes as long as waking a goroutine. A process hands over
// for up to 50 ms, until its time slice, the tokens or half of the TTL end.
func (g *grant) handOver() bool {
	c, permit := g.client, g.settings.mode.Limit > 0
	st := g.status()
	slot, s := st.slot, g.settings
	switch {
	case st.cause != nil, st.mode.Shared, s.fair, s.fixed, c.calls.closed.Load():
		return false
	case slot == nil && !permit, slot != nil && !slot.Waited():
		return false
	}
	now := c.clock.NoLaterThanNow() // the caller checks the exact time
	if g.TrustDeadline()-now < g.Grant.TTL/2 {
		return false
	}
	if permit {
		if !c.slices.MayHandOverPermit(now, g.takenAt) {
			return false
		}
	} else {
		slot.State.Released(now)
		if !slot.State.MayHandOver(now, &c.slices) {
			return false
		}
	}
	served := c.queue.Serve(g.name(), 1, func(next *waiter) bool {
		return next.accepts && s.mayShareGrant(next.settings) && g.attach(&next.tenure, nil)
	}) > 0
	if served && slot != nil {
		slot.Announce(func(*occupant) {}) // for callers that found the grant idle
	}
	return served
}

// handOverOrRelease gives up an idle grant. It hands it over to the next caller of this process, or
// releases it.
func (g *grant) handOverOrRelease(ctx context.Context) error {
	if g.handOver() {
		return nil
	}
	g.end(ErrReleased) // unless it was lost or closed meanwhile
	return g.release(ctx)
}
