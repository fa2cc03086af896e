package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/crowd"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// The path of a lock through the files:
//   - Lock: lock (lock.go), enter (enter.go), then attemptUntilGranted: attempt, after a refusal
//     beforeRetry (wait.go), startLease. Then the watchdog renews it (internal/watchdog, loss.go).
//   - Lock with WithShared: acquireShared (group.go), awaitDecision (groupwait.go). The leader of
//     the group takes the path of Lock.
//   - LockAll: acquireBatch (lockbatch.go), or the path of Lock for one name after the other.
//   - Unlock: unlock, releaseOrHandOver (unlock.go), then either handOver (handover.go), whose lock
//     the next caller takes in attempt, or releaseToStore.

// lockCall is a Lock, TryLock, batch, one name of a LockAll or a leader while it acquires. It
// becomes a waiter behind a holder or another caller.
type lockCall struct {
	client   *Client
	settings *settings
	ctx      context.Context // the caller's, limited by WithWait once it is a waiter

	isWaiter     bool
	waitingSince clock.Instant
	cancel       context.CancelFunc

	wake     chan struct{}
	unwatch  func() // nil without a subscription
	poll     backoff.Backoff
	woken    bool          // the last sleep ended with a notification
	ownState queueState    // of a call without a slot, such as a fair one
	fair     *crowd.Caller // nil unless the call is fair; also nil if the store is local
	answerBy time.Time     // when to give up waiting for another caller's outcome; zero while not waiting for one
	failure  error         // why the state of the lock is unknown; nil if it is known
	tooEarly bool          // the call ended so soon that failure is no sign of an outage

	// storeHasAnswered says that the store has answered this call, or another caller of this process
	// since this call began. The grant of a lock that another caller held when this call began counts, too.
	storeHasAnswered bool
}

// acquire takes the lock for h. An exclusive caller and one that wants a permit enter the local
// queue, then ask the store. A shared caller joins a group. Every fair caller asks the store.
func (lc *lockCall) acquire(h *hold) error {
	defer lc.stopWaiting()
	switch {
	case lc.settings.fair:
		if !lc.client.traits.Local {
			lc.fair = lc.client.crowds.Join(h.name)
			defer lc.fair.Leave()
		}
		return lc.report(h, lc.attemptUntilGranted(h))
	case lc.settings.mode.Shared:
		return lc.report(h, lc.acquireShared(h))
	}
	h.acceptsHandOver = true
	err := lc.enter(h)
	if err == nil {
		err = lc.attemptUntilGranted(h)
	}
	return lc.report(h, err)
}

// attemptUntilGranted asks the store for the lock until the store grants it or the caller gives up.
func (lc *lockCall) attemptUntilGranted(h *hold) error {
	for {
		err := lc.attempt(h)
		if err == nil {
			return nil
		}
		if err = lc.beforeRetry(h, err); err != nil {
			h.abandon()
			return err
		}
	}
}

// attempt makes one attempt, and makes a grant the caller's lock.
func (lc *lockCall) attempt(h *hold) error {
	if err := lc.beginRequest(); err != nil {
		return err
	}
	sent, err := h.attempt(lc.ctx, lc.timeLeft())
	lc.endRequest(err)
	if err == nil {
		err = h.startLease(sent)
	}
	return err
}

// errLeftLine is the failure of a request whose caller's context ended in the line.
var errLeftLine = errors.New("the context ended before the request was sent")

// beginRequest blocks until a fair caller may send a request: callers that came earlier go first. The
// time in the line does not count for the RequestTimeout of the request, but a store that answers
// none of those ahead for as long counts as unreachable. After nil, the caller calls endRequest.
func (lc *lockCall) beginRequest() error {
	if lc.fair == nil {
		return nil
	}
	q := lc.fair.Begin()
	if q == nil {
		return nil
	}
	lc.startWaiting()
	err := lc.waitInLine(q)
	if err != nil {
		lc.fair.Cancel(q)
	}
	return err
}

func (lc *lockCall) waitInLine(q *crowd.Request) error {
	c := lc.client
	entered := c.clock.NoLaterThanNow()
	since := entered // when the store last answered, at the earliest
	silence := time.NewTimer(c.requestTimeout)
	defer silence.Stop()
	for {
		select {
		case <-q.Admitted:
			return nil
		case <-lc.ctx.Done():
			since = max(since, lc.fair.LastAnswer())
			if since == entered || c.clock.NoLaterThanNow()-since >= maxHolderAge { // else callers ahead are served
				lc.noteGivenUp(errNoOutcome, &lc.ownState, since)
			}
			return errLeftLine
		case <-c.calls.closing:
			return ErrClosed
		case <-silence.C:
		}
		if lc.isWaiter { // TryLock waits for no longer
			since = max(since, lc.fair.LastAnswer())
		}
		left := c.requestTimeout - (c.clock.NoLaterThanNow() - since)
		if left <= 0 {
			return fmt.Errorf("%w within %v", errNoOutcome, c.requestTimeout)
		}
		silence.Reset(left)
	}
}

// endRequest ends a request that failed with err, or succeeded.
func (lc *lockCall) endRequest(err error) {
	if lc.fair != nil {
		lc.fair.End(isAnswer(lc.ctx, err), lc.client.clock.NoLaterThanNow())
	}
}

// attempt makes one attempt, and returns the instant of sending. If the predecessor in the
// local queue handed its lock over, and the grant can still be trusted, attempt takes that lock.
// Otherwise it asks the store, for no longer than limit.
func (h *hold) attempt(ctx context.Context, limit time.Duration) (sent clock.Instant, err error) {
	c := h.client
	if lock := h.received; lock != nil {
		h.received = nil
		h.revocation, h.takenAt = lock.revocation, lock.takenAt
		if h.accept(lock.grant, lock.token, lock.sent) == nil {
			return lock.sent, nil
		}
		h.releaseUnusable() // it ended during the hand-over
	}
	h.queueAsPredecessor()
	req := h.attemptRequest()
	limited, timer := c.withTimeout(ctx, limit)
	defer timer.End()
	sent = c.clock.NoLaterThanNow()
	h.asked.Store(int64(sent))
	grant, err := c.store.Acquire(limited, req)
	if err != nil {
		h.noteFailure(req.Queue, err)
		return sent, c.explain(ctx, limited, err)
	}
	h.takenAt = sent
	return sent, h.accept(grant, grant.Token, sent)
}

// noteFailure records whether an attempt that failed has to be undone: the store may carry it out,
// or keeps a place in its queue if the request had Queue.
func (h *hold) noteFailure(queue bool, err error) {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	placed := h.alwaysQueues() || refused && refusal.Mode.Shared
	if queue && placed || !driver.Unchanged(err) {
		h.needsUndo = true
	}
}

// accept checks a grant and the token that h has of it. A grant that arrives after its trust
// deadline is rejected, and so is a lock that the store revoked before it was granted.
func (h *hold) accept(grant driver.Grant, token uint64, sent clock.Instant) error {
	h.Grant, h.token = grant, token
	h.needsUndo = true
	h.Margin = watchdog.Margin(grant.TTL, h.settings.margin)
	c := h.client
	answeredAtOnce := c.traits.Local && !h.wasHandedOver()
	if !answeredAtOnce && c.clock.Now() >= sent+grant.TTL-h.Margin {
		return fmt.Errorf("%w: the answer took longer than the lease lasts", ErrUnreachable)
	}
	return h.revocation.err()
}

// startLease makes the grant the caller's lock. If it fails, there is no lease. It then releases a
// grant that was handed over, or that a closed client got. Any other grant is left to the caller,
// which tries again with the same owner, or abandons.
func (h *hold) startLease(sent clock.Instant) error {
	if err := h.startWatchdog(sent); err != nil {
		return err
	}
	return h.client.deliver(h)
}

// startWatchdog is startLease without the lease: the hold is renewed from then on.
func (h *hold) startWatchdog(sent clock.Instant) error {
	c := h.client
	if slot := h.slot.Load(); slot != nil && !h.wasHandedOver() {
		slot.State.Taken(sent, &c.slices)
		if h.refusal.Load() == nil {
			slot.State.fairWaiters = false
		}
		if !c.traits.Local { // nothing waits for the answer of a local store
			slot.State.Answered(c.clock.NoLaterThanNow())
		}
	}
	if err := h.revocation.reportTo(h); err != nil {
		if h.wasHandedOver() {
			h.releaseUnusable()
		}
		return err
	}
	c.watchdog.Watch(&h.Hold, sent)
	if c.traits.ReportsLoss && h.endCause() != nil { // revoked before Watch
		c.watchdog.Forget(&h.Hold)
	}
	if h.group == nil && h.settings.mode != (driver.Mode{}) {
		h.leaveSlot() // the store admits other holders
	}
	h.outcome.announce()
	return nil
}

// deliver gives all holds of a call their leases. If the client is closed, it gives none, and releases
// the holds that Close has not ended.
func (c *Client) deliver(holds ...*hold) error {
	for _, h := range holds { // Close reads whether there is a lease after it has ended a hold
		h.mu.Lock()
	}
	closed := c.calls.closed.Load()
	for _, h := range holds {
		if !closed {
			h.leases = 1
		}
		h.mu.Unlock()
	}
	if !closed {
		return nil
	}
	releaseUndelivered(ErrClosed, holds...)
	return ErrClosed
}

// releaseUndelivered ends holds without leases, and releases their locks.
func releaseUndelivered(cause error, holds ...*hold) {
	var wg sync.WaitGroup
	for _, h := range holds {
		wg.Go(func() {
			if h.end(cause) {
				_ = h.releaseOrHandOver(context.Background()) // the lock expires anyway
			}
		})
	}
	wg.Wait()
}

// releaseUnusable releases what h cannot use: a grant that was handed over to it too late, or what its
// attempts so far may have left in the store. h gets a new owner: to the old one the store could grant
// tokens that earlier leases have used.
func (h *hold) releaseUnusable() {
	h.client.releaseInBackground(h.Grant, h.client.requestTimeout)
	h.Grant, h.token, h.needsUndo = driver.Grant{Name: h.name}, 0, false
}

// abandon ends a hold whose call fails. It undoes attempts of unknown outcome, and gives up a place
// in the store's queue.
func (h *hold) abandon() {
	h.mu.Lock()
	closed := errors.Is(h.cause, ErrClosed) // Close or startLease releases the lock
	if !closed {
		h.ended = h.client.clock.NoLaterThanNow()
	}
	h.mu.Unlock()
	switch {
	case closed:
	case h.needsUndo:
		h.undo()
	default:
		h.leaveSlot()
	}
}

// undo releases in the background what the owner has, and then leaves the slot, so that the next
// caller of this process does not find the lock held by this abandoned attempt. If the store does not
// answer, the next caller asks the store all the same, while undo goes on until the lock or the place
// expires.
func (h *hold) undo() {
	c, grant := h.client, h.Grant
	grant.Token = 0 // the owner alone decides
	c.cleanups.Go(func() {
		slot := h.slot.Load()
		_, err := c.releaseGrant(context.Background(), grant, c.clock.NoLaterThanNow()+c.requestTimeout)
		if err != nil && !errors.Is(err, ErrNotHeld) {
			c.noteUnanswered(slot, err)
			h.refusal.Store(nil) // whether the lock is still held is unknown
		} else if slot != nil {
			slot.State.OutageEnded()
		}
		h.leaveSlot()
		if !isFinal(err) {
			err = c.repeatRelease(grant, h.ended+h.settings.ttl, err)
		}
		if err != nil && !errors.Is(err, ErrNotHeld) {
			c.logger.Warn("dlock: an attempt could not be undone and is left to expire", "name", grant.Name, "err", err)
		}
	})
}

// noteUnanswered records in slot, for its next occupant, whether the store did not answer. slot may
// be nil.
func (c *Client) noteUnanswered(slot *slot, err error) {
	if slot != nil && errors.Is(err, ErrUnreachable) {
		slot.State.Unanswered(c.clock.NoLaterThanNow(), err)
		slot.ForgetPrevious()
	}
}
