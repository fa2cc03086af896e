package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// hold is one acquisition of one name, from the first attempt until it is
// released or lost. All leases that re-entered it share it.
type hold struct {
	watchdog.Lease // the grant; its name and owner are set from the beginning
	client         *Client
	name           string
	settings       settings

	alone  bool            // it is acquired by itself, so that it may be handed the lock
	caller context.Context // whose values the lease's context has
	outer  *hold           // the hold that the caller's context came from, or nil
	first  Lease

	slot    atomic.Pointer[localqueue.Slot[hold, queueState]] // nil when not, or no longer, inside
	blocked atomic.Pointer[driver.HeldError]                  // what the last attempt ran into

	outcome outcome     // of the attempts
	unknown bool        // an attempt failed, and may have been carried out
	lost    atomic.Bool // and not reported yet

	mu    sync.Mutex
	count int   // leases that are not unlocked yet
	cause error // why it is over; nil while it is not
	// For stores that report losses: which attempt it is, whether one was
	// reported for it, and whether its grant has begun.
	attempts        int
	reported, begun bool
	ctx             *leaseContext
	cancel          context.CancelCauseFunc
}

func (c *Client) newHold(ctx context.Context, name string, s *settings, outer *hold) *hold {
	h := &hold{
		client: c,
		name:   name,
		caller: ctx,
		outer:  outer,
		count:  1,
	}
	h.settings = *s
	h.Grant.Name = name
	h.Grant.Owner = driver.NewOwner()
	h.Fixed = s.fixed
	h.Guard = h
	h.first.hold = h
	return h
}

func (h *hold) request() driver.Request {
	return driver.Request{
		Name:   h.name,
		Owner:  h.Grant.Owner,
		TTL:    h.settings.ttl,
		Holder: h.holder(),
		Fair:   h.settings.fair,
		Queue:  h.queues(),
	}
}

// queues says that attempts which are refused leave a place in the store's queue.
func (h *hold) queues() bool {
	return (h.settings.fair || h.client.traits.Queues) && h.settings.waits()
}

// attemptRequest is the request of a new attempt.
func (h *hold) attemptRequest() driver.Request {
	req := h.request()
	if h.client.traits.ReportsLoss {
		h.mu.Lock()
		h.attempts++
		h.reported = false
		attempt := h.attempts
		h.mu.Unlock()
		req.Lost = func() { h.reportedLost(attempt) }
	}
	return req
}

func (h *hold) holder() driver.Holder {
	holder := h.client.holder
	if note := h.settings.note; note != "" {
		holder.Note = note
	}
	return holder
}

// heldError describes h to another caller of this process whom it blocks: a lock
// that is held here, or the one that h itself waits for. It returns nil while the
// store has not said that anybody has the lock.
func (h *hold) heldError() *driver.HeldError {
	if until := h.TrustDeadline(); until != 0 {
		if h.over() != nil { // whether the store has released it is not known yet
			return nil
		}
		left := until - h.client.clock.NoLaterThanNow()
		return &driver.HeldError{Name: h.name, Token: h.Grant.Token, Holder: h.holder(), Remaining: max(0, left)}
	}
	return h.blocked.Load()
}

// end makes the hold be over, once: it reports whether it was not yet. The
// context is done when it returns, so nobody believes in the lock while it is
// given back.
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	ends := h.endLocked(cause)
	h.mu.Unlock()
	if ends {
		h.cancelContext(cause)
	}
	return ends
}

// endLocked is end with h.mu held and without the context.
func (h *hold) endLocked(cause error) bool {
	if h.cause != nil {
		return false
	}
	h.cause = cause
	return true
}

// cancelContext ends the context of a hold that is over. h.cancel does not change
// any more: a context that is made now is made done.
func (h *hold) cancelContext(cause error) {
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// over returns why the hold is over, or nil.
func (h *hold) over() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// foundOpen goes through a slot that nobody was waiting at. What those before had
// heard of the store is old.
func (h *hold) foundOpen(slot *localqueue.Slot[hold, queueState]) {
	slot.State.ForgetOutage()
	h.slot.Store(slot)
}

// leave lets the next one in this process try.
func (h *hold) leave() {
	if slot := h.slot.Swap(nil); slot != nil {
		slot.Leave()
		h.outcome.decided()
	}
}

// Renewed implements watchdog.Guard.
func (h *hold) Renewed(err error) {
	c := h.client
	if err != nil {
		c.logger.Warn("dlock: renewal failed, trying again", "name", h.name, "token", h.Grant.Token,
			"trusted_for", h.TrustDeadline()-c.clock.NoLaterThanNow(), "err", err)
	}
	call(c.hooks.Renewed, Event{Name: h.name, Token: h.Grant.Token, Err: err})
}

// Lost implements watchdog.Guard.
func (h *hold) Lost(reason error) {
	err := fmt.Errorf("%w: %w", ErrLost, reason)
	if !h.end(err) {
		return
	}
	h.lost.Store(true)
	h.leave() // the store decides whether the next one gets it
}

// ReportLoss implements watchdog.Guard. It says so once, and only of a hold
// that ended by being lost.
func (h *hold) ReportLoss() {
	if !h.lost.Swap(false) {
		return
	}
	c, err := h.client, h.over()
	c.logger.Warn("dlock: lock lost", "name", h.name, "token", h.Grant.Token, "reason", err)
	call(c.hooks.Lost, Event{Name: h.name, Token: h.Grant.Token, Err: err})
}

var errReported = errors.New("the store ended it")

// reportedLost is called by stores that know of a loss before a renewal does. It
// counts for the last attempt only, and before that one's grant has begun it is
// left for begin to find: until then there is nothing to lose.
func (h *hold) reportedLost(attempt int) {
	h.mu.Lock()
	counts := attempt == h.attempts
	begun := h.begun
	h.reported = h.reported || counts
	h.mu.Unlock()
	if counts && begun {
		h.client.dog.Forget(&h.Lease)
		h.Lost(errReported)
		h.ReportLoss()
	}
}

// doubt declares the hold lost if it may not be believed in any more. The
// watchdog does the same, but may itself have been kept from running.
func (h *hold) doubt() {
	if h.client.clock.Now() >= h.TrustDeadline() {
		h.client.dog.Forget(&h.Lease)
		h.Lost(watchdog.ErrExpired)
		h.ReportLoss()
	}
}
