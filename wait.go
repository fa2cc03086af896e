package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
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
	alone  doorState // for those who pass no door

	wake    chan struct{}
	watched string // the name that wake is subscribed to; empty if none
	unwatch func()
	rested  bool  // it slept since it last tried again at once
	failure error // of the last attempt that was not answered
	poll    backoff.Backoff
}

const (
	// Polling, for stores that cannot push.
	minPoll = 5 * time.Millisecond
	maxPoll = time.Second
	// maxSilentPoll is the same for a holder that wakes nobody: programs that
	// share locks with such holders expect it to be short.
	maxSilentPoll = 200 * time.Millisecond
	// maxSleep limits the sleep of a waiter that relies on being woken.
	maxSleep = 30 * time.Second
	// maxWatchedSleep is the same where the store watches expiries too.
	maxWatchedSleep = 5 * time.Minute
	// expiryDelay is how much after an expiry waiters come, at random, so that
	// not all of them come at once.
	expiryDelay = 20 * time.Millisecond
)

// errWaitLimit is the cause with which WithWait ends a wait.
var errWaitLimit = errors.New("dlock: wait limit reached")

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

// enter passes the door of the name, behind everybody in this process who came
// before.
func (w *wait) enter() error {
	c, h := w.client, w.hold
	door, inside := c.gate.TryEnter(h.name, h)
	var err error
	if door != nil {
		h.foundOpen(door)
		err = w.yield(&door.State.turn)
	} else {
		err = w.queue(inside)
	}
	if err != nil {
		h.leave()
		return err
	}
	if c.life.ended.Load() && w.state().passed == nil {
		h.leave()
		return ErrClosed
	}
	return nil
}

// queue waits behind those of this process who came before, of whom one is
// inside.
func (w *wait) queue(inside *hold) error {
	held := inside.heldError()
	if reason := inside.undoing.Load(); reason != nil {
		held, w.failure = nil, *reason // nobody is known to have it
	}
	switch err := w.begin(); {
	case err != nil && held == nil:
		return fmt.Errorf("locking %q: %w", w.hold.name, w.failure)
	case err != nil:
		return held
	}
	door, err := w.client.gate.Enter(w.ctx, w.hold.name, w.hold)
	if err != nil {
		return w.gaveUp(held)
	}
	w.hold.door.Store(door)
	switch {
	case door.State.passed != nil:
		return nil
	case w.ctx.Err() != nil:
		return w.gaveUp(held)
	}
	if s := &door.State.silence; !s.patient(w.client.clock.NoLaterThanNow(), w.hold.settings.ttl) {
		return fmt.Errorf("locking %q: %w", w.hold.name, s.err)
	}
	return w.yield(&door.State.turn)
}

// state is what is handed on behind the door.
func (w *wait) state() *doorState {
	if door := w.hold.door.Load(); door != nil {
		return &door.State
	}
	return &w.alone
}

// after decides what to do after an attempt that failed: it returns nil when it
// is time for the next one, or the error to give up with.
func (w *wait) after(err error) error {
	state := w.state()
	held, refused := errors.AsType[*driver.HeldError](err)
	if refused {
		state.silence = silence{}
		state.turn.refused(held.Holder)
		w.hold.blocked.Store(held)
	}
	now := w.client.clock.NoLaterThanNow()
	switch {
	case w.ctx.Err() != nil:
		w.failure = err
		return w.gaveUp(held)
	case refused:
		if w.begin() != nil {
			return held
		}
		return w.afterRefusal(held)
	case w.began && errors.Is(err, ErrUnreachable):
		state.silence.lasts(now, err)
		if state.silence.patient(now, w.hold.settings.ttl) {
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
	bounded, cancel := w.client.bounded(w.ctx)
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

// watchDelay is how long to sleep if no wake-up comes.
func (w *wait) watchDelay(held *driver.HeldError) time.Duration {
	delay := backoff.Jitter(maxWatchedSleep)
	if !w.client.traits.WatchesExpiry {
		left := held.Remaining
		if left <= 0 {
			left = maxPoll // when it expires is unknown: keep asking
		}
		delay = min(left+backoff.Jitter(min(left/10, expiryDelay)), maxSleep)
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
	cause := context.Cause(w.ctx)
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
