package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// cancelInterval is how late a caller may learn that its context has ended. Waiting for each
// context by itself would cost as much as the call.
const cancelInterval = 10 * time.Millisecond

// setCancelTimerLocked makes sure that contexts are checked while a caller waits.
func (s *sender) setCancelTimerLocked() {
	if !s.canceling {
		s.canceling = true
		s.cancelTimer.Reset(cancelInterval)
	}
}

// cancelEnded signals the callers whose context has ended. Calls that still wait are not sent.
func (s *sender) cancelEnded() {
	type check struct {
		call   *call
		ctx    context.Context
		serial uint64 // a call that ends meanwhile is used again
	}
	var checks []check
	s.mu.Lock()
	for _, c := range slices.Concat(append(slices.Clip(s.underway), s.queue)...) {
		if c.state == queued || c.state == sent {
			checks = append(checks, check{c, c.ctx, c.serial})
		}
	}
	s.mu.Unlock()
	checks = slices.DeleteFunc(checks, func(k check) bool { return k.ctx.Err() == nil }) // a user's code, so without the mutex
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range checks {
		switch c := k.call; {
		case c.serial != k.serial:
		case c.state == queued:
			c.become(unsent)
		case c.state == sent:
			c.become(abandoned)
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.state == unsent })
	s.canceling = false
	if len(s.queue) > 0 || len(s.underway) > 0 {
		s.setCancelTimerLocked()
	}
}

// leftError: the caller has left because its context ended.
type leftError struct {
	cause   error // of the end of the caller's context
	failure error // why the server did not answer the last call; nil if it did, or never was called
	unsent  bool  // the server cannot carry the call out
	sender  *sender
	call    *call // nil if the call has ended without an answer
}

func (e *leftError) Error() string {
	if e.failure == nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v (the last call to the server failed: %v)", e.cause, e.failure)
}

func (e *leftError) Unwrap() error { return e.cause }

// left returns the error of a caller that leaves.
func (s *sender) left(ctx context.Context, unsent bool, c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &leftError{context.Cause(ctx), s.failure, unsent, s, c}
}

// whenEnded calls f once, when the call has ended. answered is false if the server may still
// carry it out. f must not call the sender.
func (e *leftError) whenEnded(f func(answered bool)) {
	if e.call == nil {
		f(false)
		return
	}
	e.sender.mu.Lock()
	defer e.sender.mu.Unlock()
	if e.call.state == ended {
		f(e.call.answered)
		return
	}
	e.call.onEnd = append(e.call.onEnd, f)
}

// mayBeCarriedOut reports whether the server may still carry out commands that have ended.
func mayBeCarriedOut(commands []redis.Cmder) bool {
	return slices.ContainsFunc(commands, func(cmd redis.Cmder) bool {
		return unanswered(cmd.Err()) && !neverSent(cmd.Err())
	})
}
