package dlock

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// A hold that waited for another caller of this process asks for several tokens: for twice
// as many as were used of the last grant. Redis makes tokens of its clock, with
// one for each microsecond, and hand-overs take longer than that. So its tokens do not run
// ahead of its clock, as they would if most of a large span were wasted.
const (
	minSpan = 16
	maxSpan = 1024
)

// handedOver is a lock that a hold of this process leaves to the next waiter. The grant
// stays the same; the waiter gets the next token of its span. The store is not asked, so
// a hand-over takes as long as waking a goroutine. A process hands over until its time
// slice or the span ends, or less than half of the TTL is left.
type handedOver struct {
	grant      driver.Grant
	token      uint64        // of the waiter
	sent       clock.Instant // when the grant was asked for or renewed last
	revocation *revocation
}

// wantedSpan returns how many tokens to ask for: several if callers of this process queue.
func (h *hold) wantedSpan() uint64 {
	slot := h.slot.Load()
	if slot == nil || !h.single || h.Fixed || !h.queued {
		return 1
	}
	return min(max(2*slot.State.usedTokens, minSpan), maxSpan)
}

// handOver leaves the lock and the slot to the next waiter of this process, and reports
// whether it did. The lease has ended, and is not watched any more.
func (h *hold) handOver() bool {
	c, slot := h.client, h.slot.Load()
	if slot == nil || h.Fixed || h.token-h.Grant.Token+1 >= h.Grant.Span || c.calls.closed.Load() {
		return false
	}
	now, ttl := c.clock.Now(), h.Grant.TTL
	if h.TrustDeadline()-now < ttl/2 || !slot.State.MayHandOver(now, &c.slices) {
		return false
	}
	next := slot.Next()
	if next == nil || !h.mayHandOverTo(next) || h.revocation.reportTo(nil) != nil {
		return false
	}
	sent := h.TrustDeadline() - ttl + h.Margin
	slot.State.handedOver = &handedOver{h.Grant, h.token + 1, sent, h.revocation}
	h.slot.Store(nil)
	if !slot.HandOff(next) { // next does not wait any more
		slot.State.handedOver = nil
		h.slot.Store(slot)
		return false
	}
	h.outcome.announce()
	return true
}

// mayHandOverTo reports whether next wants what h has.
func (h *hold) mayHandOverTo(next *hold) bool {
	a, b := &h.settings, &next.settings
	return next.single && !b.fixed && a.ttl == b.ttl && a.margin == b.margin
}

// takeHandedOver returns the lock that the predecessor handed over, once.
func (h *hold) takeHandedOver() (lock *handedOver) {
	if slot := h.slot.Load(); slot != nil {
		lock, slot.State.handedOver = slot.State.handedOver, nil
	}
	return lock
}
