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

// wait is one caller's waiting, from the first refusal on. Waiting is pushed
// where the store can: subscribe, try again, then sleep until woken. A wake-up
// that gets lost costs time and never the lock, because the sleep is limited by
// what the holder has left.
type wait struct {
	client *Client
	ctx    context.Context // the caller's, limited by WithWait once waiting began
	hold   *hold

	began  bool
	since  clock.Instant
	cancel context.CancelFunc
	alone  queueState // for those who pass no slot

	wake    chan struct{}
	watched string // the name that wake is subscribed to; empty if none
	unwatch func()
	rested  bool  // it slept since it last tried again at once
	failure error // why nothing is known of the lock; nil if something is
	// outcomeLimit ends a wait for the outcomes of other attempts; nil before it.
	outcomeLimit <-chan time.Time
	poll         backoff.Backoff
}

const (
	// Polling, for stores that cannot push.
	minPoll = 5 * time.Millisecond
	maxPoll = time.Second
	// maxSilentPoll is the same for a holder that wakes nobody: programs that
	// share locks with such holders expect it to be short.
	maxSilentPoll = 200 * time.Millisecond
	// maxSleep limits the sleep of a waiter that relies on being woken, and
	// minWatchedSleep the rate at which it polls where the store watches expiries
	// too.
	maxSleep        = 30 * time.Second
	minWatchedSleep = time.Second
	// maxSubscribe limits one attempt to subscribe, because the waiter does not try
	// to acquire meanwhile. Afterwards it polls, and subscribes again.
	maxSubscribe = time.Second
	// expiryDelay is how much after an expiry waiters come, at random, so that
	// not all of them come at once.
	expiryDelay = 20 * time.Millisecond
)

// errWaitLimit is the cause with which WithWait ends a wait.
var errWaitLimit = errors.New("wait limit reached")

// begin makes the caller a waiter. It fails for those who do not want to wait.
func (w *wait) begin() error {
	if w.began {
		return nil
	}
	s := &w.hold.settings
	if !s.waits() {
		return errWaitLimit
	}
	w.began = true
	w.since = w.client.clock.NoLaterThanNow()
	if s.limited {
		w.ctx, w.cancel = context.WithTimeoutCause(w.ctx, s.wait, errWaitLimit)
	}
	w.wake = make(chan struct{}, 1)
	w.rested = true
	w.poll = backoff.Backoff{Min: minPoll, Max: maxPoll}
	return nil
}

// stop frees what the waiting needed.
func (w *wait) stop() {
	if w.unwatch != nil {
		w.unwatch()
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// enter passes the slot of the name, behind everybody in this process who came
// before.
func (w *wait) enter() error {
	c, h := w.client, w.hold
	for h.slot.Load() == nil {
		slot, inside := c.queue.TryEnter(h.name, h)
		var err error
		if slot != nil {
			h.foundOpen(slot)
			err = w.pause(&slot.State)
		} else {
			err = w.queue(inside)
		}
		if err != nil {
			h.leave()
			return err
		}
	}
	if c.life.ended.Load() && w.state().passed == nil {
		h.leave()
		return ErrClosed
	}
	return nil
}

// queue waits behind the callers of this process that came before, of whom one is
// inside. A caller that does not want to wait is not inside when queue returns nil,
// and tries again.
func (w *wait) queue(inside *hold) error {
	if w.begin() != nil {
		return w.awaitOutcome(inside)
	}
	if inside.heldError() == nil {
		w.failure = errNoOutcome
	}
	slot, err := w.client.queue.Enter(w.ctx, w.hold.name, w.hold)
	if err != nil {
		return w.gaveUp(cmp.Or(w.insider(), inside.heldError()))
	}
	w.hold.slot.Store(slot)
	switch {
	case slot.State.passed != nil:
		return nil
	case w.ctx.Err() != nil:
		return w.gaveUp(inside.heldError())
	}
	if err := slot.State.OutageTooLong(w.client.clock.NoLaterThanNow(), w.hold.settings.ttl); err != nil {
		return fmt.Errorf("locking %q: %w", w.hold.name, err)
	}
	w.failure = nil
	return w.pause(&slot.State)
}

// errNoOutcome is why a call fails that was behind another one of this process
// whose outcome is not known: the lock may be free, held or unreachable.
var errNoOutcome = fmt.Errorf("%w: an earlier attempt of this process has no outcome yet", ErrUnreachable)

// awaitOutcome returns who has the lock, if that is known. Otherwise it waits until
// the attempt of the caller inside has an outcome, and returns nil to try again.
func (w *wait) awaitOutcome(inside *hold) error {
	decided := inside.outcome.wait()
	if held := inside.heldError(); held != nil {
		return held
	}
	if w.client.queue.Occupant(w.hold.name) != inside {
		return nil // it was decided before
	}
	if w.outcomeLimit == nil {
		w.outcomeLimit = time.After(w.client.limit)
	}
	select {
	case <-decided:
		if held := inside.heldError(); held != nil {
			return held // the store has said so since this caller came
		}
		return nil
	case <-w.outcomeLimit:
		return fmt.Errorf("locking %q: %w for %v", w.hold.name, errNoOutcome, w.client.limit)
	case <-w.client.life.ending:
		return ErrClosed
	case <-w.ctx.Done():
		w.failure = errNoOutcome
		return w.gaveUp(nil)
	}
}

// insider describes who has the lock to a caller behind the one that is inside. It
// returns nil if that is not known.
func (w *wait) insider() *driver.HeldError {
	if inside := w.client.queue.Occupant(w.hold.name); inside != nil {
		return inside.heldError()
	}
	return nil
}

// state is what is handed on behind the slot.
func (w *wait) state() *queueState {
	if slot := w.hold.slot.Load(); slot != nil {
		return &slot.State
	}
	return &w.alone
}

// after decides what to do after an attempt that failed: it returns nil when it
// is time for the next one, or the error to give up with.
func (w *wait) after(err error) error {
	state := w.state()
	held, refused := errors.AsType[*driver.HeldError](err)
	if refused {
		state.Refused(held.Holder)
		w.hold.blocked.Store(held)
		w.hold.outcome.decided()
	}
	now := w.client.clock.NoLaterThanNow()
	switch {
	case deadline.Passed(w.ctx) != nil:
		w.failure = err
		return w.gaveUp(held)
	case refused:
		if w.begin() != nil {
			return held
		}
		return w.afterRefusal(held)
	case errors.Is(err, ErrUnreachable):
		state.Unanswered(now, err)
		if w.began && state.OutageTooLong(now, w.hold.settings.ttl) == nil {
			w.failure = err
			return w.sleep(w.poll.Next(), w.hold.blocked.Load())
		}
	}
	return fmt.Errorf("locking %q: %w", w.hold.name, err)
}

// afterRefusal subscribes before it sleeps for the first time, and returns at
// once to try again, because the lock may have been released in between.
func (w *wait) afterRefusal(held *driver.HeldError) error {
	if w.client.watcher == nil {
		return w.sleep(w.pollDelay(held), held)
	}
	if held.Silent {
		return w.sleep(min(w.pollDelay(held), backoff.Jitter(maxSilentPoll)), held)
	}
	if w.watched == w.hold.name {
		if err := w.sleep(w.watchDelay(held), held); err != nil {
			return err
		}
		return w.giveWay(held)
	}
	if w.unwatch != nil { // of several names another one is in the way now
		w.unwatch()
		w.watched, w.unwatch = "", nil
	}
	bounded, cancel := w.client.limited(w.ctx, min(w.client.limit, maxSubscribe))
	defer cancel()
	req := w.hold.request()
	unwatch, err := w.client.watcher.Watch(bounded, req, waker(w.wake))
	if err != nil {
		return w.sleep(w.pollDelay(held), held) // and try to subscribe again
	}
	w.watched, w.unwatch = w.hold.name, unwatch
	if !w.rested { // of several names always another one is in the way
		return w.sleep(w.pollDelay(held), held)
	}
	w.rested = false
	return nil
}

// pause lets other processes try first at the end of a time slice.
func (w *wait) pause(state *queueState) error {
	if !w.hold.settings.waits() {
		return nil
	}
	pause := state.PauseBeforeTaking(w.client.clock.NoLaterThanNow(), &w.client.slices)
	if pause == 0 {
		return nil
	}
	return w.sleep(pause, nil)
}

// giveWay lets other processes try first after a wake-up, if it is their turn.
func (w *wait) giveWay(held *driver.HeldError) error {
	if w.hold.queues() {
		return nil
	}
	pause := w.state().YieldAfterWake(w.client.clock.NoLaterThanNow(), &w.client.slices)
	if pause == 0 {
		return nil
	}
	return w.sleep(pause, held)
}

// waker returns what a store calls to wake a waiter. It knows the channel and
// not the wait, which stays off the heap for those who need not wait.
func waker(wake chan<- struct{}) func() {
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// pollDelay is the time between two attempts without a subscription.
func (w *wait) pollDelay(held *driver.HeldError) time.Duration {
	delay := w.poll.Next()
	if left := held.Remaining; left > 0 && left < delay {
		delay = backoff.Jitter(left) + minPoll
	}
	return w.keepPlace(delay)
}

// watchDelay is how long to sleep if no wake-up comes. Also where every change is
// notified, the waiter polls a few times in a TTL: a server that is gone notifies
// nobody, and a connection may be dead without a sign of it.
func (w *wait) watchDelay(held *driver.HeldError) time.Duration {
	delay := backoff.Jitter(min(max(w.hold.settings.ttl/3, minWatchedSleep), maxSleep))
	if !w.client.traits.WatchesExpiry {
		left := held.Remaining
		if left <= 0 {
			left = maxPoll // when it expires is unknown: keep asking
		}
		delay = min(delay, left+backoff.Jitter(min(left/10, expiryDelay)))
	}
	return w.keepPlace(delay)
}

// keepPlace makes fair waiters come often enough to keep their place in the
// queue, which lasts for a TTL.
func (w *wait) keepPlace(delay time.Duration) time.Duration {
	if w.hold.settings.fair {
		return min(delay, backoff.Jitter(w.hold.settings.ttl/3))
	}
	return delay
}

// sleep waits for a wake-up, but no longer than that.
func (w *wait) sleep(limit time.Duration, held *driver.HeldError) error {
	w.rested = true
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.wake:
		return nil
	case <-timer.C:
		return nil
	case <-w.client.life.ending:
		return ErrClosed
	case <-w.ctx.Done():
		return w.gaveUp(held)
	}
}

// gaveUp is the error of a wait whose context is done: for WithWait who has the
// lock, otherwise the context's cause and who has the lock. If nobody was seen to
// have it, it is the store that did not answer.
func (w *wait) gaveUp(held *driver.HeldError) error {
	name := w.hold.name
	if held == nil {
		held = w.hold.blocked.Load()
	}
	cause := cmp.Or(context.Cause(w.ctx), context.DeadlineExceeded) // its timer may be late
	limit := errors.Is(cause, errWaitLimit)
	switch {
	case held != nil && limit:
		return held
	case held != nil:
		return &waitError{held: held, cause: cause}
	case limit && w.failure != nil:
		return fmt.Errorf("locking %q: %w: no answer within the limit of the wait: %w", name, ErrUnreachable, w.failure)
	case limit: // of a pause
		return &driver.HeldError{Name: name}
	case errors.Is(w.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w; so far: %w", name, cause, w.failure)
	}
	return fmt.Errorf("locking %q: %w", name, cause)
}

// waitError is a wait that was cancelled. It wraps the context's cause and says
// who had the lock.
type waitError struct {
	held  *driver.HeldError
	cause error
}

func (e *waitError) Error() string   { return e.held.Error() + ", gave up waiting: " + e.cause.Error() }
func (e *waitError) Unwrap() []error { return []error{e.cause, e.held} }
