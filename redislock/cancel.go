package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// cancelInterval is how late a caller in the queue may learn that its context has ended. A caller
// that sends learns it when its call ends. One timer checks the contexts of all calls, because a
// goroutine for each would cost as much as the call.
const cancelInterval = 10 * time.Millisecond

// setCancelTimerLocked makes sure that contexts are checked while a caller waits.
func (s *sender) setCancelTimerLocked() {
	if !s.cancelTimerSet {
		s.cancelTimerSet = true
		s.cancelTimer.Reset(cancelInterval)
	}
}

// cancelEnded lets the callers return whose context has ended. It removes their calls from the
// queue if they were not sent yet.
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
			c.become(notSent)
		case c.state == sent:
			c.become(abandoned)
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.state == notSent })
	s.cancelTimerSet = false
	if len(s.queue) > 0 || len(s.underway) > 0 {
		s.setCancelTimerLocked()
	}
}

// abandonedError: the caller has abandoned its call, because its context ended.
type abandonedError struct {
	cause   error // of the end of the caller's context
	failure error // why the server did not answer the last call; nil if it did, or never was called
	notSent bool  // the server cannot carry the call out
	sender  *sender
	call    *call // nil if the call has ended without an answer
}

func (e *abandonedError) Error() string {
	if e.failure == nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v (the last call to the server failed: %v)", e.cause, e.failure)
}

func (e *abandonedError) Unwrap() error { return e.cause }

func (s *sender) abandonedErr(ctx context.Context, notSent bool, c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &abandonedError{context.Cause(ctx), s.failure, notSent, s, c}
}

// whenEnded calls f once, when the call has ended. answered is false if the server may still
// carry it out. f must not call the sender.
func (e *abandonedError) whenEnded(f func(answered bool)) {
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
