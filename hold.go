package dlock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// hold is one acquisition of one name, from the first attempt until it is released or lost. All
// leases that re-entered it share it. How it ends:
//   - The last lease is unlocked, or the client is closed: releaseOrHandOver.
//   - The lock is lost: the watchdog calls Lost, others call lose. Unlock then calls releaseLost.
//   - The call fails before there is a lease: abandon, and undo if the store may keep something.
//
// Every release in the store is a call of releaseGrant. leaveSlot admits the next caller.
type hold struct {
	watchdog.Hold // the grant and its trust deadline; until it is granted, only name and owner
	client        *Client
	name          string
	settings      *settings // shared with other holds: it does not change

	token      uint64          // one of the tokens of the grant
	takenAt    clock.Instant   // when this process asked the store for the grant
	callerCtx  context.Context // whose values the lease's context has
	outer      *hold           // the enclosing hold: in a LockAll the previous name's, otherwise that of callerCtx; may be nil
	firstLease Lease           // what Lock returns; the others re-entered

	slot    atomic.Pointer[slot]             // in the local queue; nil if h is not its occupant
	refusal atomic.Pointer[driver.HeldError] // of the last attempt
	outcome outcomeSignal                    // of the attempts

	received        *handedOver  // by the predecessor, until attempt takes it; nil if it was not handed over
	acceptsHandOver bool         // not WithFair, shared or in a batch
	joinedQueue     bool         // asks as a fair caller, because fair callers wait: see joinQueue
	waitedLocally   bool         // for another caller of this process
	pausing         atomic.Bool  // for other processes, before it has asked the store for anything
	needsUndo       bool         // an attempt left something in the store, or may still do so
	asked           atomic.Int64 // an instant: when the last attempt was sent
	unanswered      atomic.Bool  // the last attempt failed because the store did not answer, not because the caller gave up
	downgraded      bool         // guarded by mu
	lossPending     atomic.Bool  // lost, and not reported yet

	mu     sync.Mutex
	leases int32         // that are not unlocked yet; zero before startLease or, for a member, admitLocked
	cause  error         // why the hold has ended; nil if it has not
	ended  clock.Instant // when it ended, or its attempts were given up; zero before that, and always zero for members
	ctx    *leaseContext
	cancel context.CancelCauseFunc

	leader *hold  // of a member, which shares the grant of the leader; else nil
	group  *group // of a leader; else nil

	// revocation receives the store's report that it revoked the grant, or that of the attempt
	// under way. It is nil if the store does not report losses.
	revocation *revocation
}

func (c *Client) newHold(ctx context.Context, name string, s *settings, outer *hold) *hold {
	h := &hold{client: c, name: name, settings: s, callerCtx: ctx, outer: outer}
	h.Grant = driver.Grant{Name: name}
	h.Fixed = s.fixed
	h.Observer = h
	h.firstLease.hold = h
	return h
}

func (h *hold) request() driver.Request {
	return driver.Request{Name: h.name, Owner: h.Grant.Owner, TTL: h.settings.ttl,
		Mode: h.settings.mode, Holder: h.holder(), Fair: h.isFair(), Queue: h.queues()}
}

func (h *hold) attemptRequest() driver.Request {
	if h.Grant.Owner == (driver.Owner{}) {
		h.Grant.Owner = driver.NewOwner()
	}
	req := h.request()
	if h.client.traits.ReportsLoss {
		h.revocation = new(revocation)
		req.Lost = h.revocation.report
	}
	return req
}

// queues reports whether a refused attempt leaves a place in the store's queue. An exclusive
// attempt does so at least if shared holders refuse it.
func (h *hold) queues() bool {
	exclusive := h.settings.mode == driver.Mode{}
	return (h.alwaysQueues() || h.client.traits.Shared && exclusive) && h.settings.waits()
}

// alwaysQueues reports whether the store keeps a place for h whatever the mode of the holder is.
func (h *hold) alwaysQueues() bool { return h.isFair() || h.client.traits.Queues }

// isFair reports whether h asks the store as a fair caller.
func (h *hold) isFair() bool { return h.settings.fair || h.joinedQueue }

// storedModeLocked returns the mode as the store counts it. h.mu is held.
func (h *hold) storedModeLocked() driver.Mode {
	if h.downgraded {
		return driver.Mode{Shared: true}
	}
	return h.settings.mode
}

func (h *hold) holder() driver.Holder {
	holder := h.client.holder
	if note := h.settings.note; note != "" {
		holder.Note = note
	}
	return holder
}

// wasGranted reports whether h has or had the lock. Members of a group count as not granted.
func (h *hold) wasGranted() bool { return h.TrustDeadline() != 0 }

// lastSent returns when the request was sent that granted the lock to h or renewed it last.
func (h *hold) lastSent() clock.Instant { return h.TrustDeadline() - h.Grant.TTL + h.Margin }

// expiry returns when the store frees the lock, at the earliest, if it is not renewed any more.
func (h *hold) expiry() clock.Instant { return h.TrustDeadline() + h.Margin }

// end ends the hold and reports whether it had not ended before. The context is done
// when end returns, before the lock is released. A leader ends the members of its group.
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	ends := h.endLocked(cause)
	h.mu.Unlock()
	if ends {
		h.cancelContext(cause)
		h.group.end(cause)
	}
	return ends
}

// endLocked only records the end. h.mu is held.
func (h *hold) endLocked(cause error) bool {
	if h.cause != nil {
		return false
	}
	h.cause = cause
	if h.leader == nil {
		h.ended = h.client.clock.NoLaterThanNow()
	}
	return true
}

// cancelContext ends the context of a hold that has ended. It reads h.cancel without h.mu, because
// h.context does not set it after the hold has ended.
func (h *hold) cancelContext(cause error) {
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// endCause returns why the hold has ended, or nil. A member ends with its leader.
func (h *hold) endCause() error {
	h.mu.Lock()
	cause, leader := h.cause, h.leader
	h.mu.Unlock()
	if cause == nil && leader != nil {
		return leader.endCause()
	}
	return cause
}

// unlockAcquired unlocks the holds that were acquired, of a call that fails or panics.
func unlockAcquired(holds ...*hold) {
	var wg sync.WaitGroup
	for _, h := range holds {
		if h.leader != nil || h.wasGranted() {
			wg.Go(func() { _ = h.firstLease.Unlock(context.Background()) }) // the call has an error of its own
		}
	}
	wg.Wait()
}

// outcomeSignal lets callers of a process wait until another caller's attempt was granted or
// refused. It costs one load if no caller waits.
type outcomeSignal struct {
	announcement atomic.Pointer[chan struct{}] // closed by the next announcement; nil while no caller waits
}

// next returns a channel that is closed at the next announcement. The caller checks
// the state again after it has the channel, because an earlier outcome is not announced
// again.
func (o *outcomeSignal) next() <-chan struct{} {
	for {
		if c := o.announcement.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if o.announcement.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// announce wakes the callers that wait: the attempt was granted or refused, or the hold
// has left its slot.
func (o *outcomeSignal) announce() {
	if o.announcement.Load() != nil { // costs less than Swap
		if c := o.announcement.Swap(nil); c != nil {
			close(*c)
		}
	}
}
