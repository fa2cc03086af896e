package dlock

import (
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// grant is what the store has for one owner, from the first attempt until the store has nothing of it
// any more. It knows its tenures, and no calls. Its life:
//
//   - asking: a claim asks for it, and owns it. A report of the store is only noted.
//   - held: it has tenures. attachLocked adds one, detachLocked removes one. The goroutine that sets
//     its cause releases it, or leaves its slot if it was lost.
//   - idle: the last tenure was detached, and the goroutine that did so owns it. It attaches the next
//     caller (handOver), or ends and releases the grant. Others only set the cause.
//   - ended: the cause is set, for good.
//
// An exclusive grant occupies the slot of its name until it has ended. The queue's lock comes before mu,
// and under neither of them anything calls the store, a hook or the end of a context.
type grant struct {
	watchdog.Hold // what the store granted, and the trust deadline; while asking only name and owner
	client        *Client
	settings      *settings
	takenAt       clock.Instant // when this process asked the store for it

	mu         sync.Mutex
	slot       *slot   // that it occupies until its end, if it is exclusive; nil otherwise
	tenures    *tenure // the first of a list
	used       uint32  // tokens
	downgraded bool    // to a shared one
	cause      error   // why it has ended; nil if it has not
	ended      clock.Instant
	revocation revocation
	reports    []*tenure // that were delivered when it ended, to be reported
}

// revocation is what the store has reported about the last attempt for a grant.
type revocation struct {
	attempt  int32
	reported bool
}

// newGrant returns a grant and its first tenure, in one allocation.
func newGrant(c *Client, name string, s *settings) (*grant, *tenure) {
	n := new(struct {
		grant  grant
		tenure tenure
	})
	g := &n.grant
	g.client, g.settings = c, s
	g.Grant = driver.Grant{Name: name, Owner: driver.NewOwner()}
	g.Fixed = s.fixed
	g.Observer = g
	return g, &n.tenure
}

func (g *grant) name() string { return g.Grant.Name }

// attach attaches t, or fails. The first tenure brings the slot that an exclusive grant occupies from then on.
func (g *grant) attach(t *tenure, slot *slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.attachLocked(t) {
		return false
	}
	if slot != nil && g.settings.mode == (driver.Mode{}) {
		g.slot = slot
	}
	return true
}

// attachLocked gives t the grant, with the next token. It fails if the grant has ended or was revoked, or
// its tokens are used up. It is the only beginning of a tenure.
func (g *grant) attachLocked(t *tenure) bool {
	if g.cause != nil || g.revocation.reported || uint64(g.used) >= g.client.traits.TokenStep {
		return false
	}
	t.grant, t.token, t.entries = g, g.Grant.Token+uint64(g.used), 1
	t.first.tenure = t
	t.next = g.tenures
	if t.next != nil {
		t.next.prev = t
	}
	g.tenures = t
	g.used++
	return true
}

// detachLocked removes t, and reports whether the grant is idle then.
func (g *grant) detachLocked(t *tenure) (idle bool) {
	if t.next != nil {
		t.next.prev = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		g.tenures = t.next
	}
	t.next, t.prev = nil, nil
	if g.tenures == nil && g.settings.mode.Shared {
		g.client.shared.CompareAndDelete(g.name(), g)
	}
	return g.tenures == nil
}

// end ends the grant. It reports whether the caller has to release it, or leave its slot: the grant was
// held, and had not ended before. Otherwise its owner does.
func (g *grant) end(cause error) bool {
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return false
	}
	g.cause, g.ended = cause, g.client.clock.NoLaterThanNow()
	var ended []*tenure
	for t := g.tenures; t != nil; t = t.next {
		ended = append(ended, t)
		if t.stage >= delivered {
			g.reports = append(g.reports, t)
		}
	}
	g.mu.Unlock()
	for _, t := range ended {
		t.endContext(cause)
	}
	return len(ended) > 0
}

// storedMode returns the mode as the store counts it. The caller has locked mu.
func storedMode(g *grant) driver.Mode {
	if g.downgraded {
		return driver.Mode{Shared: true}
	}
	return g.settings.mode
}

// status is what is known of a grant at one moment.
type status struct {
	held  bool          // a caller has the lock by the grant
	cause error         // why it has ended; nil if it has not
	ended clock.Instant // or zero
	mode  driver.Mode   // as the store counts it
	slot  *slot         // that it occupies; may be nil
	token uint64        // of the last tenure or, if the grant is shared, of the first
}

func (g *grant) status() status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := status{held: g.tenures != nil && g.cause == nil, cause: g.cause, ended: g.ended, mode: storedMode(g), slot: g.slot, token: g.Grant.Token}
	if !g.settings.mode.Shared {
		st.token += uint64(max(g.used, 1) - 1)
	}
	return st
}
