package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/deadline"
)

const (
	// Poll intervals for stores without notifications.
	minPoll = 5 * time.Millisecond
	maxPoll = time.Second
	// maxSilentPoll is maxPoll for a holder whose release sends no notification:
	// programs that share locks with such holders expect it to be short.
	maxSilentPoll = 200 * time.Millisecond
	// maxSleep limits the sleep of a waiter that has a subscription.
	maxSleep = 30 * time.Second
	// minWatchedSleep is its minimum for a short TTL.
	minWatchedSleep = time.Second
	// maxSubscribe limits one attempt to subscribe, because the waiter does not try
	// to acquire meanwhile.
	maxSubscribe = time.Second
	// restInCrowd is after how many sleeps a fair waiter polls although another one polls for it.
	restInCrowd = 30
	// expiryDelay spreads the attempts of waiters after an expiry.
	expiryDelay = 20 * time.Millisecond
)

// errWaitLimit is the cause with which WithWait ends a wait.
var errWaitLimit = errors.New("wait limit reached")

// startWaiting makes the caller a waiter, and reports whether it is willing to wait. If the store
// can notify, a waiter subscribes, tries again, and sleeps until it is notified. A lost
// notification costs time and never the lock, because the waiter also polls a few times in a TTL.
func (lc *lockCall) startWaiting() bool {
	if lc.isWaiter || !lc.settings.waits() {
		return lc.isWaiter
	}
	lc.isWaiter = true
	lc.waitingSince = lc.client.clock.NoLaterThanNow()
	if lc.settings.wait > 0 {
		lc.ctx, lc.cancel = context.WithTimeoutCause(lc.ctx, lc.settings.wait, errWaitLimit)
	}
	lc.wake = make(chan struct{}, 1)
	lc.poll = backoff.Backoff{Min: minPoll, Max: maxPoll}
	return true
}

// stopWaiting frees what the waiting needed.
func (lc *lockCall) stopWaiting() {
	lc.unsubscribe()
	if lc.cancel != nil {
		lc.cancel()
	}
}

// report calls the hooks at the end of an acquisition, and returns err.
func (lc *lockCall) report(h *hold, err error) error {
	c := lc.client
	event := Event{Name: h.name, Token: h.token, Waited: lc.timeWaited(), Err: err}
	if lc.isWaiter {
		call(c.hooks.Waited, event)
	}
	if err == nil {
		call(c.hooks.Acquired, event)
	}
	return err
}

func (lc *lockCall) timeWaited() time.Duration {
	if !lc.isWaiter {
		return 0
	}
	return lc.client.clock.NoLaterThanNow() - lc.waitingSince
}

// timeLeft returns how long the next attempt may take: a RequestTimeout, less what this call
// has spent on waiting for another caller's outcome if the store has not answered since.
func (lc *lockCall) timeLeft() time.Duration {
	if lc.storeHasAnswered || lc.answerBy.IsZero() {
		return lc.client.requestTimeout
	}
	return time.Until(lc.answerBy)
}

// state returns what h knows about the contention for its name.
func (lc *lockCall) state(h *hold) *queueState {
	if slot := h.slot.Load(); slot != nil {
		return &slot.State
	}
	return &lc.ownState
}

// beforeRetry blocks after a failed attempt until the next attempt is worth it. It
// returns the error to give up with, or nil.
func (lc *lockCall) beforeRetry(h *hold, err error) error {
	if errors.Is(err, errLeftLine) {
		return lc.giveUpError(h, nil)
	}
	refusal, refused := errors.AsType[*driver.HeldError](err)
	if !refused {
		return lc.afterFailure(h, err)
	}
	if err := lc.noteRefusal(h, refusal); err != nil {
		return err
	}
	if lc.joinQueue(h, refusal) {
		return nil // the next attempt takes the place
	}
	_, err = lc.awaitRelease(h, refusal)
	return err
}

// afterFailure waits for a store that did not answer, unless the outage is too long.
func (lc *lockCall) afterFailure(h *hold, err error) error {
	if deadline.Passed(lc.ctx) != nil && !isAnswer(lc.ctx, err) {
		lc.noteGivenUp(err, lc.state(h), clock.Instant(h.asked.Load()))
		return lc.giveUpError(h, nil)
	}
	if errors.Is(err, ErrClosed) { // Close may have left the slot, which then is not of h any more
		return fmt.Errorf("locking %q: %w", h.name, err)
	}
	state, now := lc.state(h), lc.client.clock.NoLaterThanNow()
	if !errors.Is(err, ErrUnreachable) {
		state.Answered(now) // the callers behind have a RequestTimeout of their own
		return fmt.Errorf("locking %q: %w", h.name, err)
	}
	state.Unanswered(now, err)
	h.unanswered.Store(true)
	if slot := h.slot.Load(); slot != nil {
		slot.ForgetPrevious()
	}
	if lc.storeHasAnswered && state.OutageTooLong(now, lc.settings.ttl) == nil {
		lc.failure, lc.tooEarly = err, false
		h.refusal.Store(nil) // whether the lock is still held is unknown
		return lc.sleep(h, lc.poll.Next())
	}
	return fmt.Errorf("locking %q: %w", h.name, err)
}

// noteRefusal records the refusal for the other callers of this process, and makes this caller a
// waiter. It fails if this caller does not wait, or not any longer.
func (lc *lockCall) noteRefusal(h *hold, refusal *driver.HeldError) error {
	lc.storeHasAnswered = true
	h.unanswered.Store(false)
	lc.state(h).Refused(lc.client.clock.NoLaterThanNow(), refusal.Holder, refusal.Token)
	h.refusal.Store(refusal)
	h.outcome.announce()
	if deadline.Passed(lc.ctx) != nil {
		return lc.giveUpError(h, refusal)
	}
	if !lc.startWaiting() {
		return refusal
	}
	return nil
}

// awaitRelease blocks until the holder that the refusal names may have released the lock. The
// first time it subscribes, reports that it did, and returns at once, because the lock may have
// been released before the subscription.
func (lc *lockCall) awaitRelease(h *hold, refusal *driver.HeldError) (subscribed bool, err error) {
	switch {
	case lc.client.watcher == nil:
		return false, lc.sleep(h, lc.pollDelay(h, refusal))
	case refusal.Silent:
		return false, lc.sleep(h, min(lc.pollDelay(h, refusal), backoff.Jitter(maxSilentPoll)))
	case lc.unwatch != nil:
		if delay := lc.contendedDelay(h); delay > 0 {
			return false, lc.sleep(h, delay)
		}
		if err := lc.sleepWatched(h, refusal); err != nil || h.alwaysQueues() {
			return false, err
		}
		return false, lc.sleep(h, lc.state(h).YieldAfterWake(lc.client.clock.NoLaterThanNow(), &lc.client.slices))
	case lc.subscribe(h) != nil:
		return false, lc.sleep(h, lc.pollDelay(h, refusal)) // and subscribe later
	}
	return true, nil
}

// sleepWatched blocks until another attempt of a waiter that has a subscription is worth it.
func (lc *lockCall) sleepWatched(h *hold, refusal *driver.HeldError) error {
	for n := 1; ; n++ {
		delay := lc.watchDelay(h, refusal)
		if err := lc.sleep(h, delay); err != nil || lc.woken || n == restInCrowd || !lc.restsInCrowd(delay) {
			return err
		}
	}
}

// restsInCrowd reports whether a fair waiter need not poll. If its watch keeps its place, the first
// waiter of the process polls for all of them: it notices an outage, after which they poll, too.
func (lc *lockCall) restsInCrowd(delay time.Duration) bool {
	f := lc.fair
	return f != nil && lc.client.traits.Queues && !f.IsFirst() && lc.client.clock.NoLaterThanNow()-f.LastAnswer() < 2*delay
}

func (lc *lockCall) subscribe(h *hold) error {
	if err := lc.beginRequest(); err != nil {
		return err
	}
	err := lc.watch(h)
	lc.endRequest(err)
	return err
}

func (lc *lockCall) watch(h *hold) error {
	limited, timer := lc.client.withTimeout(lc.ctx, min(lc.client.requestTimeout, maxSubscribe))
	defer timer.End()
	unwatch, err := lc.client.watcher.Watch(limited, h.request(), waker(lc.wake))
	if err == nil {
		lc.unwatch = unwatch
	}
	return err
}

func (lc *lockCall) unsubscribe() {
	if lc.unwatch != nil {
		lc.unwatch()
		lc.unwatch = nil
	}
}

// waker returns what a store calls to wake a waiter. It refers to the channel and not
// to the lockCall, so that a lockCall that does not wait stays off the heap.
func waker(wake chan<- struct{}) func() {
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// contendedDelay is how long to sleep before the next attempt if waiters have to poll because the
// lock changes hands often, and otherwise zero.
func (lc *lockCall) contendedDelay(h *hold) time.Duration {
	if h.alwaysQueues() {
		return 0
	}
	return lc.state(h).PollDelay(lc.client.clock.NoLaterThanNow(), &lc.client.slices)
}

// pollDelay is the time between two attempts without a subscription.
func (lc *lockCall) pollDelay(h *hold, refusal *driver.HeldError) time.Duration {
	delay := lc.contendedDelay(h)
	if delay == 0 {
		delay = lc.poll.Next()
	}
	if left := refusal.Remaining; left > 0 && left < delay {
		delay = backoff.Jitter(left) + minPoll
	}
	return lc.keepPlace(h, delay, refusal)
}

// watchDelay is how long to sleep without a notification. Even if the store notifies
// of every change, the waiter polls a few times in a TTL: a server that is down
// notifies no waiter, and a connection may be dead without a sign of it.
func (lc *lockCall) watchDelay(h *hold, refusal *driver.HeldError) time.Duration {
	delay := backoff.Jitter(min(max(lc.settings.ttl/3, minWatchedSleep), maxSleep))
	if !lc.client.traits.WatchesExpiry {
		left := refusal.Remaining
		if left <= 0 {
			left = maxPoll // the expiry is unknown
		}
		delay = min(delay, left+backoff.Jitter(min(left/10, expiryDelay)))
	}
	if lc.client.traits.Queues {
		return delay // the watch keeps the place
	}
	return lc.keepPlace(h, delay, refusal)
}

// keepPlace shortens the delay of a waiter that has a place in the store's queue. The place lasts
// for a PlaceTTL after each attempt.
func (lc *lockCall) keepPlace(h *hold, delay time.Duration, refusal *driver.HeldError) time.Duration {
	if h.isFair() || refusal.Mode.Shared {
		return min(delay, backoff.Jitter(driver.PlaceTTL(lc.settings.ttl)/3))
	}
	return delay
}

// mayQueue reports whether err is a refusal that says that fair callers wait, and h would queue
// behind them.
func (lc *lockCall) mayQueue(h *hold, err error) bool {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	return refused && refusal.Queued && h.client.traits.Fair && !h.alwaysQueues() && h.settings.waits()
}

// joinQueue makes h ask as a fair caller from the next attempt on if it is not one yet and fair
// callers wait, and reports whether it did. Otherwise fair callers, of which one always waits, would
// have the lock in turn, and the others never. A caller without WithFair keeps its place in the local
// queue and hands over as always, so that its process takes one turn for a time slice. What the old
// owner has in the store, such as the place of an exclusive waiter behind shared holders, is released.
func (lc *lockCall) joinQueue(h *hold, refusal *driver.HeldError) bool {
	if !h.isFair() {
		lc.state(h).fairWaiters = refusal.Queued && lc.client.traits.Fair
	}
	if !lc.mayQueue(h, refusal) {
		return false
	}
	if h.needsUndo {
		h.releaseUnusable()
	}
	h.Grant.Owner = driver.Owner{}
	h.joinedQueue = true
	lc.unsubscribe() // from what the old owner waits for
	return true
}

// queueAsPredecessor makes the first attempt of a waiter a fair one if the caller before it in the
// local queue found fair callers waiting: it would pass them.
func (h *hold) queueAsPredecessor() {
	first := h.Grant.Owner == driver.Owner{}
	if first && h.knowsFairWaiters() {
		h.joinedQueue = true
	}
}

// knowsFairWaiters reports whether h is willing to wait, and a caller before it in the local queue
// found fair callers waiting.
func (h *hold) knowsFairWaiters() bool {
	slot := h.slot.Load()
	return slot != nil && slot.State.fairWaiters && h.settings.waits()
}

// sleep blocks until the waiter is woken, but no longer than limit.
func (lc *lockCall) sleep(h *hold, limit time.Duration) error {
	lc.woken = false
	if limit <= 0 {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-lc.wake:
		lc.woken = true
		return nil
	case <-timer.C:
		return nil
	case <-lc.client.calls.closing:
		return ErrClosed
	case <-lc.ctx.Done():
		return lc.giveUpError(h, nil)
	}
}

// giveUpError returns the error of a wait whose context is done: the holder if WithWait
// ended the wait, otherwise the context's cause and the holder. If no holder is known, lc.failure
// says why. A store that has had only a moment for its answer does not count as unreachable.
func (lc *lockCall) giveUpError(h *hold, held *driver.HeldError) error {
	held = cmp.Or(held, h.refusal.Load(), h.lastHolder())
	cause := cmp.Or(context.Cause(lc.ctx), context.DeadlineExceeded) // the context's timer may be late
	byWaitLimit := errors.Is(cause, errWaitLimit)
	switch {
	case held != nil && byWaitLimit:
		return held
	case held != nil:
		return &waitError{held: held, cause: cause}
	case byWaitLimit && lc.tooEarly:
		return fmt.Errorf("locking %q: the limit of the wait ended before the store answered: %w", h.name, context.DeadlineExceeded)
	case lc.tooEarly:
		return fmt.Errorf("locking %q: the wait ended before the store answered: %w", h.name, cause)
	case byWaitLimit && errors.Is(lc.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w (gave up at the limit of the wait)", h.name, lc.failure)
	case byWaitLimit && lc.failure != nil:
		return fmt.Errorf("locking %q: %w: no answer within the limit of the wait: %w", h.name, ErrUnreachable, lc.failure)
	case byWaitLimit: // in a pause for other processes: no holder is known
		return &driver.HeldError{Name: h.name}
	case errors.Is(lc.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w; last failure: %w", h.name, cause, lc.failure)
	case lc.failure != nil:
		return fmt.Errorf("locking %q: the store has not answered: %w", h.name, cause)
	}
	return fmt.Errorf("locking %q: %w", h.name, cause)
}

// waitError is the error of a cancelled wait. It wraps the context's cause and the
// holder.
type waitError struct {
	held  *driver.HeldError
	cause error
}

func (e *waitError) Error() string   { return e.held.Error() + ", gave up waiting: " + e.cause.Error() }
func (e *waitError) Unwrap() []error { return []error{e.cause, e.held} }
