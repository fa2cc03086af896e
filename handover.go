package dlock

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// handedOver is a lock that a hold of this process leaves to the next waiter. The grant
// stays the same; the waiter gets its next token. The store is not asked, so
// a hand-over takes as long as waking a goroutine. A process hands over for up to
// 50 ms, until its time slice, the tokens or half of the TTL end.
type handedOver struct {
	grant      driver.Grant
	token      uint64        // of the waiter
	sent       clock.Instant // when the grant was asked for or renewed last
	takenAt    clock.Instant // when it was asked for
	revocation *revocation
}

// wasHandedOver reports whether other leases have used the grant before h.
func (h *hold) wasHandedOver() bool { return h.token != h.Grant.Token }

// usedTokens returns how many tokens of the grant h and the leases before it have used.
func (h *hold) usedTokens() uint64 { return h.token - h.Grant.Token + 1 }

// handOver leaves the lock to the next waiter of this process, and reports whether it did. The
// lease has ended, and the watchdog does not watch it any more. An exclusive holder is the occupant
// of the slot, and leaves it to the waiter, too.
func (h *hold) handOver() bool {
	c, slot, permit := h.client, h.slot.Load(), h.settings.mode.Limit > 0
	if slot == nil && !permit || h.settings.mode.Shared || h.settings.fair {
		return false
	}
	if h.usedTokens() >= c.traits.TokenStep || c.calls.closed.Load() {
		return false
	}
	now := c.clock.NoLaterThanNow() // the waiter checks the exact time
	if h.TrustDeadline()-now < h.Grant.TTL/2 || h.revocation.err() != nil {
		return false
	}
	if permit {
		return c.slices.MayHandOverPermit(now, h.takenAt) && c.queue.Serve(h.name, h.handOverTo)
	}
	slot.State.Released(now)
	if !slot.State.MayHandOver(now, &c.slices) || !slot.HandOver(h.handOverTo) {
		return false
	}
	h.outcome.announce()
	return true
}

// handOverTo leaves the lock to next if next wants what h has.
func (h *hold) handOverTo(next *hold) bool {
	if !next.acceptsHandOver || next.settings.mode != h.settings.mode || !h.settings.mayShareGrant(next.settings) {
		return false
	}
	next.received = &handedOver{h.Grant, h.token + 1, h.lastSent(), h.takenAt, h.revocation}
	h.slot.Store(nil)
	return true
}
