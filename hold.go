package dlock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// hold is one acquisition of one name, from the first attempt until it is
// released or lost. All leases that re-entered it share it.
type hold struct {
	watchdog.Hold // the grant; its name is set from the beginning, its owner by the first attempt
	client        *Client
	name          string
	settings      settings

	span   uint64          // how many tokens it asks for
	token  uint64          // one of the tokens of the grant
	single bool            // one name, not LockAll: the lock may be handed over to it
	queued bool            // it waited for another caller of this process
	caller context.Context // whose values the lease's context has
	outer  *hold           // the hold that the caller's context came from, or nil
	first  Lease

	slot    atomic.Pointer[slot]             // in the local queue; nil if h is not its occupant
	refusal atomic.Pointer[driver.HeldError] // of the last attempt

	outcome     outcome     // of the attempts
	needsUndo   bool        // an attempt left something in the store, or may still do so
	lossPending atomic.Bool // the Lost hook was not called yet

	mu     sync.Mutex
	leases int   // that are not unlocked yet
	cause  error // why the hold has ended; nil if it has not
	ctx    *leaseContext
	cancel context.CancelCauseFunc

	// revocation is that of the grant, or of the last attempt. It is nil if the store does
	// not report losses.
	revocation *revocation
}

func (c *Client) newHold(ctx context.Context, name string, s *settings, outer *hold) *hold {
	h := &hold{client: c, name: name, settings: *s, caller: ctx, outer: outer, leases: 1}
	h.Grant = driver.Grant{Name: name}
	h.Fixed = s.fixed
	h.Observer = h
	h.first.hold = h
	return h
}

func (h *hold) request() driver.Request {
	return driver.Request{Name: h.name, Owner: h.Grant.Owner, TTL: h.settings.ttl,
		Holder: h.holder(), Fair: h.settings.fair, Queue: h.queues()}
}

// attemptRequest returns the request of a new attempt.
func (h *hold) attemptRequest() driver.Request {
	if h.Grant.Owner == (driver.Owner{}) {
		h.Grant.Owner = driver.NewOwner()
		h.span = h.wantedSpan()
	}
	req := h.request()
	req.Span = h.span
	if h.client.traits.ReportsLoss {
		h.revocation = new(revocation)
		req.Lost = h.revocation.report
	}
	return req
}

// queues reports whether a refused attempt leaves a place in the store's queue.
func (h *hold) queues() bool {
	return (h.settings.fair || h.client.traits.Queues) && h.settings.waits()
}

func (h *hold) holder() driver.Holder {
	holder := h.client.holder
	if note := h.settings.note; note != "" {
		holder.Note = note
	}
	return holder
}

// end ends the hold and reports whether it had not ended before. The context is done
// when end returns, before the lock is released.
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	ends := h.endLocked(cause)
	h.mu.Unlock()
	if ends {
		h.cancelContext(cause)
	}
	return ends
}

// endLocked is end without the context. h.mu is held.
func (h *hold) endLocked(cause error) bool {
	if h.cause != nil {
		return false
	}
	h.cause = cause
	return true
}

// cancelContext ends the context of a hold that has ended. It may read h.cancel
// without h.mu: context does not set it after the end.
func (h *hold) cancelContext(cause error) {
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// endCause returns why the hold has ended, or nil.
func (h *hold) endCause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// unlockAcquired unlocks the holds that were acquired, of a call that fails or panics.
func unlockAcquired(holds ...*hold) {
	var wg sync.WaitGroup
	for _, h := range holds {
		if h.TrustDeadline() != 0 {
			wg.Go(func() { _ = h.first.Unlock(context.Background()) }) // the call has an error of its own
		}
	}
	wg.Wait()
}
