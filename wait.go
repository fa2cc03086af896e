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

// wait is the waiting of one call. It begins when the call finds the lock held, by this
// process or another. If the store can notify, the waiter subscribes, tries again, and
// sleeps until it is notified. A lost notification costs time and never the lock,
// because the waiter also polls a few times in a TTL.
type wait struct {
	client   *Client
	settings *settings
	ctx      context.Context // the caller's, limited by WithWait once waiting began

	began  bool
	since  clock.Instant
	cancel context.CancelFunc

	wake     chan struct{}
	unwatch  func() // nil without a subscription
	poll     backoff.Backoff
	fair     queueState // of fair callers, which have no slot
	answered bool       // the store has answered this call, or says that another holds the lock
	answerBy time.Time  // limit of a call that waits for another caller's outcome; else zero
	failure  error      // why the state of the lock is unknown; nil if it is known
}

const (
	// Poll intervals for stores without notifications.
	minPoll = 5 * time.Millisecond
	maxPoll = time.Second
	// maxSilentPoll is the same for a holder whose release sends no notification:
	// programs that share locks with such holders expect it to be short.
	maxSilentPoll = 200 * time.Millisecond
	// maxSleep limits the sleep of a waiter that has a subscription.
	maxSleep = 30 * time.Second
	// minWatchedSleep limits how often such a waiter polls.
	minWatchedSleep = time.Second
	// maxSubscribe limits one attempt to subscribe, because the waiter does not try
	// to acquire meanwhile.
	maxSubscribe = time.Second
	// expiryDelay spreads the attempts of waiters after an expiry.
	expiryDelay = 20 * time.Millisecond
)

// errWaitLimit is the cause with which WithWait ends a wait.
var errWaitLimit = errors.New("wait limit reached")

// startWaiting makes the caller a waiter. It fails if the caller does not want to wait.
func (w *wait) startWaiting() error {
	switch {
	case w.began:
		return nil
	case !w.settings.waits():
		return errWaitLimit
	}
	w.began = true
	w.since = w.client.clock.NoLaterThanNow()
	if w.settings.wait > 0 {
		w.ctx, w.cancel = context.WithTimeoutCause(w.ctx, w.settings.wait, errWaitLimit)
	}
	w.wake = make(chan struct{}, 1)
	w.poll = backoff.Backoff{Min: minPoll, Max: maxPoll}
	return nil
}

// stop frees what the waiting needed.
func (w *wait) stop() {
	w.unsubscribe()
	if w.cancel != nil {
		w.cancel()
	}
}

// report calls the hooks at the end of an acquisition, and returns err.
func (w *wait) report(h *hold, err error) error {
	c := w.client
	event := Event{Name: h.name, Token: h.token, Waited: w.waited(), Err: err}
	if w.began {
		call(c.hooks.Waited, event)
	}
	if err == nil {
		call(c.hooks.Acquired, event)
	}
	return err
}

// waited returns how long the call has waited.
func (w *wait) waited() time.Duration {
	if !w.began {
		return 0
	}
	return w.client.clock.NoLaterThanNow() - w.since
}

// timeLeft returns how long the next attempt may take: a RequestTimeout, less what this call
// has spent on waiting for another caller's outcome if the store has not answered since.
func (w *wait) timeLeft() time.Duration {
	if w.answered || w.answerBy.IsZero() {
		return w.client.requestTimeout
	}
	return time.Until(w.answerBy)
}

// state returns what h knows about the contention for its name.
func (w *wait) state(h *hold) *queueState {
	if slot := h.slot.Load(); slot != nil {
		return &slot.State
	}
	return &w.fair
}

// beforeRetry blocks after a failed attempt until the next attempt is worth it. It
// returns the error to give up with, or nil.
func (w *wait) beforeRetry(h *hold, err error) error {
	held, refused := errors.AsType[*driver.HeldError](err)
	if !refused {
		return w.afterFailure(h, err)
	}
	if err := w.noteRefusal(h, held); err != nil {
		return err
	}
	_, err = w.awaitRelease(h, held)
	return err
}

// afterFailure waits for a store that did not answer, unless the outage is too long.
func (w *wait) afterFailure(h *hold, err error) error {
	if deadline.Passed(w.ctx) != nil {
		w.failure = err
		return w.gaveUp(h, nil)
	}
	if errors.Is(err, ErrUnreachable) {
		state, now := w.state(h), w.client.clock.NoLaterThanNow()
		state.Unanswered(now, err)
		if w.answered && state.OutageTooLong(now, w.settings.ttl) == nil {
			w.failure = err
			h.refusal.Store(nil) // whether the lock is still held is unknown
			return w.sleep(h, w.poll.Next())
		}
	}
	return fmt.Errorf("locking %q: %w", h.name, err)
}

// noteRefusal tells the other callers of this process that held has the lock, and
// begins to wait. It fails if this caller does not wait any longer.
func (w *wait) noteRefusal(h *hold, held *driver.HeldError) error {
	w.answered = true
	w.state(h).Refused(w.client.clock.NoLaterThanNow(), held.Holder, held.Token)
	h.refusal.Store(held)
	h.outcome.announce()
	if deadline.Passed(w.ctx) != nil {
		return w.gaveUp(h, held)
	}
	if w.startWaiting() != nil {
		return held
	}
	return nil
}

// awaitRelease blocks until held may have released the lock. The first time it
// subscribes and returns at once, because the lock may have been released before the
// subscription.
func (w *wait) awaitRelease(h *hold, held *driver.HeldError) (atOnce bool, err error) {
	switch {
	case w.client.watcher == nil:
		return false, w.sleep(h, w.pollDelay(h, held))
	case held.Silent:
		return false, w.sleep(h, min(w.pollDelay(h, held), backoff.Jitter(maxSilentPoll)))
	case w.unwatch != nil:
		if delay := w.contendedDelay(h); delay > 0 {
			return false, w.sleep(h, delay)
		}
		if err := w.sleep(h, w.watchDelay(held)); err != nil {
			return false, err
		}
		return false, w.yieldAfterWake(h)
	case w.subscribe(h) != nil:
		return false, w.sleep(h, w.pollDelay(h, held)) // and subscribe later
	}
	return true, nil
}

// subscribe asks the store to notify this waiter.
func (w *wait) subscribe(h *hold) error {
	limited, cancel := w.client.limited(w.ctx, min(w.client.requestTimeout, maxSubscribe))
	defer cancel()
	unwatch, err := w.client.watcher.Watch(limited, h.request(), waker(w.wake))
	if err == nil {
		w.unwatch = unwatch
	}
	return err
}

func (w *wait) unsubscribe() {
	if w.unwatch != nil {
		w.unwatch()
		w.unwatch = nil
	}
}

// waker returns what a store calls to wake a waiter. It refers to the channel and not
// to the wait, so that calls that do not wait keep the wait off the heap.
func waker(wake chan<- struct{}) func() {
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// yieldAfterWake lets other processes try first, if it is their turn.
func (w *wait) yieldAfterWake(h *hold) error {
	if h.queues() {
		return nil
	}
	return w.sleep(h, w.state(h).YieldAfterWake(w.client.clock.NoLaterThanNow(), &w.client.slices))
}

// contendedDelay is the time until the next attempt on a store without notifications, or zero
// if another delay is right.
func (w *wait) contendedDelay(h *hold) time.Duration {
	if h.queues() {
		return 0
	}
	return w.state(h).PollDelay(w.client.clock.NoLaterThanNow(), &w.client.slices)
}

// pollDelay is the time between two attempts without a subscription.
func (w *wait) pollDelay(h *hold, held *driver.HeldError) time.Duration {
	delay := w.contendedDelay(h)
	if delay == 0 {
		delay = w.poll.Next()
	}
	if left := held.Remaining; left > 0 && left < delay {
		delay = backoff.Jitter(left) + minPoll
	}
	return w.keepPlace(delay)
}

// watchDelay is how long to sleep without a notification. Even if the store notifies
// of every change, the waiter polls a few times in a TTL: a server that is down
// notifies no waiter, and a connection may be dead without a sign of it.
func (w *wait) watchDelay(held *driver.HeldError) time.Duration {
	delay := backoff.Jitter(min(max(w.settings.ttl/3, minWatchedSleep), maxSleep))
	if !w.client.traits.WatchesExpiry {
		left := held.Remaining
		if left <= 0 {
			left = maxPoll // the expiry is unknown
		}
		delay = min(delay, left+backoff.Jitter(min(left/10, expiryDelay)))
	}
	return w.keepPlace(delay)
}

// keepPlace makes fair waiters try often enough to keep their place in the store's
// queue, which lasts for a TTL.
func (w *wait) keepPlace(delay time.Duration) time.Duration {
	if w.settings.fair {
		return min(delay, backoff.Jitter(w.settings.ttl/3))
	}
	return delay
}

// sleep blocks until the waiter is woken, but no longer than limit.
func (w *wait) sleep(h *hold, limit time.Duration) error {
	if limit <= 0 {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.wake:
		return nil
	case <-timer.C:
		return nil
	case <-w.client.calls.closing:
		return ErrClosed
	case <-w.ctx.Done():
		return w.gaveUp(h, nil)
	}
}

// gaveUp returns the error of a wait whose context is done: the holder if WithWait
// ended the wait, otherwise the context's cause and the holder. If no holder is known,
// the store did not answer.
func (w *wait) gaveUp(h *hold, held *driver.HeldError) error {
	held = cmp.Or(held, h.refusal.Load())
	cause := cmp.Or(context.Cause(w.ctx), context.DeadlineExceeded) // the context's timer may be late
	limit := errors.Is(cause, errWaitLimit)
	switch {
	case held != nil && limit:
		return held
	case held != nil:
		return &waitError{held: held, cause: cause}
	case limit && errors.Is(w.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w (gave up at the limit of the wait)", h.name, w.failure)
	case limit && w.failure != nil:
		return fmt.Errorf("locking %q: %w: no answer within the limit of the wait: %w", h.name, ErrUnreachable, w.failure)
	case limit: // in a pause
		return &driver.HeldError{Name: h.name}
	case errors.Is(w.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w; so far: %w", h.name, cause, w.failure)
	case w.failure != nil:
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
