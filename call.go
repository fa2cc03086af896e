package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// A lock on its way through the files. Each thing has one life and one owner:
//
//   - call (this file): one Lock, TryLock or LockAll, and its patience.
//   - bid (bid.go): one name of a call. It enters the local queue (enter.go), asks the store with its
//     claim, waits after a refusal (wait.go), and delivers what it got.
//   - claim (claim.go): what it takes to ask the store for one grant again and again.
//   - grant (grant.go): what the store has for one owner, until it has nothing of it any more. The
//     watchdog renews it (loss.go).
//   - tenure (tenure.go): what one caller has of a grant. A Lease is one entry of it.
//
// Who gets a claim or a grant without asking the store stands in pass.go. Unlock takes the way back:
// unlock.go, then pass.go or release.go.

// call is how long a Lock, TryLock or LockAll is willing to wait, and what it knows of the store. It
// becomes a waiter behind a holder or another caller. In a LockAll it is with the bid that it waits for.
type call struct {
	client   *Client
	settings *settings
	ctx      context.Context // the caller's, limited by WithWait once it is a waiter
	cancel   context.CancelFunc

	isWaiter     bool
	waitingSince clock.Instant
	answerBy     time.Time // when to give up waiting for another caller's outcome; zero while not waiting for one
	failure      error     // why the state of the lock is unknown; nil if it is known
	tooEarly     bool      // the call ended so soon that failure is no sign of an outage

	// storeHasAnswered says that the store has answered this call, or another caller of this process
	// since this call began. The grant of a lock that another caller held when this call began counts, too.
	storeHasAnswered bool
}

// errWaitLimit is the cause with which WithWait ends a wait.
var errWaitLimit = errors.New("wait limit reached")

// startWaiting makes the call a waiter, and reports whether it is willing to wait.
func (c *call) startWaiting() bool {
	if c.isWaiter || !c.settings.waits() {
		return c.isWaiter
	}
	c.isWaiter = true
	c.waitingSince = c.client.clock.NoLaterThanNow()
	if c.settings.wait > 0 {
		c.ctx, c.cancel = context.WithTimeoutCause(c.ctx, c.settings.wait, errWaitLimit)
	}
	return true
}

// stopWaiting frees what the waiting needed.
func (c *call) stopWaiting() {
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *call) timeWaited() time.Duration {
	if !c.isWaiter {
		return 0
	}
	return c.client.clock.NoLaterThanNow() - c.waitingSince
}

// timeLeft returns how long the next attempt may take: a RequestTimeout, less what this call
// has spent on waiting for another caller's outcome if the store has not answered since.
func (c *call) timeLeft() time.Duration {
	if c.storeHasAnswered || c.answerBy.IsZero() {
		return c.client.requestTimeout
	}
	return time.Until(c.answerBy)
}

// timeForAnswer returns how long this call may still wait for the store's answer to another caller.
// The time begins when it is first asked for, and lasts for a RequestTimeout or until an answer.
func (c *call) timeForAnswer() time.Duration {
	if c.answerBy.IsZero() {
		c.answerBy = time.Now().Add(c.client.requestTimeout)
	}
	return time.Until(c.answerBy)
}

// waitForAnswerAgain begins the time for the answer anew: the caller in front has not asked yet.
func (c *call) waitForAnswerAgain() (due <-chan time.Time) {
	c.answerBy = time.Time{}
	return time.After(c.timeForAnswer())
}

// notePause records that the call has paused, which takes no time from that for the answer.
func (c *call) notePause(pause time.Duration) {
	if !c.answerBy.IsZero() {
		c.answerBy = c.answerBy.Add(pause)
	}
}

// noteAnswer records that the store has answered another caller. The next attempt has a RequestTimeout
// of its own.
func (c *call) noteAnswer() {
	c.storeHasAnswered, c.answerBy, c.failure = true, time.Time{}, nil
}

// errNoOutcome is the failure of a call behind another attempt of unknown outcome:
// the lock may be free, held or unreachable.
var errNoOutcome = fmt.Errorf("%w: the store has not answered an earlier call of this process", ErrUnreachable)

// noteGivenUp records that the caller's own limit ends the call. The store has not answered since silent.
func (c *call) noteGivenUp(failure error, state *queueState, silent clock.Instant) {
	tooEarly := state.GaveUp(c.client.clock.Now(), silent, maxHolderAge)
	c.tooEarly = tooEarly && (c.failure == nil || c.tooEarly)
	c.failure = failure
}

// noteNoOutcome records that the call gives up behind an attempt of unknown outcome. An occupant that
// pauses has made no attempt yet. own is the state of a call that occupies the slot itself, else nil.
func (c *call) noteNoOutcome(name string, own *queueState) {
	now := c.client.clock.Now()
	if own != nil {
		c.noteGivenUp(errNoOutcome, own, now)
		return
	}
	switch v := c.client.queue.View(name); {
	case !v.Occupied:
		c.noteGivenUp(errNoOutcome, &queueState{}, now)
	case !v.Occupant.pausing: // the state is not this caller's
		c.noteGivenUp(errNoOutcome, &queueState{}, cmp.Or(v.Occupant.unansweredSince(), now))
		c.tooEarly = c.tooEarly && !v.Occupant.silent
	}
}

// unanswered is the error of a call that has waited too long for an answer.
func (c *call) unanswered(name string) error {
	return fmt.Errorf("locking %q: %w within %v", name, errNoOutcome, c.client.requestTimeout)
}

// giveUpError returns the error of a wait whose context is done: the holder if WithWait
// ended the wait, otherwise the context's cause and the holder. If no holder is known, failure
// says why. A store that has had only a moment for its answer does not count as unreachable.
func (c *call) giveUpError(name string, held *driver.HeldError) error {
	held = cmp.Or(held, c.client.lastHolder(name, c.settings.mode))
	cause := cmp.Or(context.Cause(c.ctx), context.DeadlineExceeded) // the context's timer may be late
	byWaitLimit := errors.Is(cause, errWaitLimit)
	switch {
	case held != nil && byWaitLimit:
		return held
	case held != nil:
		return &waitError{held: held, cause: cause}
	case byWaitLimit && c.tooEarly:
		return fmt.Errorf("locking %q: the limit of the wait ended before the store answered: %w", name, context.DeadlineExceeded)
	case c.tooEarly:
		return fmt.Errorf("locking %q: the wait ended before the store answered: %w", name, cause)
	case byWaitLimit && errors.Is(c.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w (gave up at the limit of the wait)", name, c.failure)
	case byWaitLimit && c.failure != nil:
		return fmt.Errorf("locking %q: %w: no answer within the limit of the wait: %w", name, ErrUnreachable, c.failure)
	case byWaitLimit: // in a pause for other processes: no holder is known
		return &driver.HeldError{Name: name}
	case errors.Is(c.failure, ErrUnreachable):
		return fmt.Errorf("locking %q: %w; last failure: %w", name, cause, c.failure)
	case c.failure != nil:
		return fmt.Errorf("locking %q: the store has not answered: %w", name, cause)
	}
	return fmt.Errorf("locking %q: %w", name, cause)
}

// deliver makes the tenures of a call the caller's, all or none, and returns why it does not. They are
// in the order of their names, so that two calls cannot wait for each other.
func (c *Client) deliver(tenures ...*tenure) (err error) {
	for _, t := range tenures { // Close reads the stage of a tenure when it ends its grant
		t.grant.mu.Lock()
	}
	for _, t := range tenures {
		if cause := t.grant.cause; cause != nil && err == nil {
			err = cause
		}
	}
	if c.calls.closed.Load() {
		err = ErrClosed
	}
	for _, t := range tenures {
		if err == nil {
			t.stage = delivered
			if !c.hooks.tellOfStart() {
				t.stage = acquired
			}
		}
		t.grant.mu.Unlock()
	}
	return err
}

// waitError is the error of a cancelled wait. It wraps the context's cause and the
// holder.
type waitError struct {
	held  *driver.HeldError
	cause error
}

func (e *waitError) Error() string   { return e.held.Error() + ", gave up waiting: " + e.cause.Error() }
func (e *waitError) Unwrap() []error { return []error{e.cause, e.held} }

// lastHolder returns the last known holder for the error of a caller with wanted, whose wait ends while a
// call of this process to the store is unanswered. It returns nil if the occupant of the slot knows none
// and none was known within maxHolderAge.
func (c *Client) lastHolder(name string, wanted driver.Mode) *driver.HeldError {
	v := c.queue.View(name)
	if !v.Occupied {
		return nil
	}
	held, _ := errors.AsType[*driver.HeldError](v.Occupant.excludes(name, wanted))
	now := c.clock.Now()
	held = cmp.Or(held, v.Occupant.recentHolder(now, wanted))
	if held == nil && v.Previous != nil {
		held = v.Previous.recentHolder(now, wanted)
	}
	return held
}
