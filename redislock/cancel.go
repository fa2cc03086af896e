package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
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
		ended  bool
	}
	var checks []check
	s.mu.Lock()
	for _, calls := range append(slices.Clip(s.underway), s.queue) {
		for _, c := range calls {
			if c.state == queued || c.state == sent {
				checks = append(checks, check{call: c, ctx: c.ctx, serial: c.serial})
			}
		}
	}
	s.mu.Unlock()
	for i := range checks {
		checks[i].ended = checks[i].ctx.Err() != nil // a user's code, so without the mutex
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range checks {
		switch c := k.call; {
		case !k.ended || c.serial != k.serial:
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
	if e.call.onEnd = f; e.call.state == ended {
		f(e.call.answered)
	}
}

// mayBeCarriedOut reports whether the server may still carry out commands that have ended.
func mayBeCarriedOut(commands []redis.Cmder) bool {
	return slices.ContainsFunc(commands, func(cmd redis.Cmder) bool {
		return unanswered(cmd.Err()) && !neverSent(cmd.Err())
	})
}

// neverSent reports whether the client failed before it had a connection.
func neverSent(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	return ok && network.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
}

// recordUnsettled records an attempt that failed with err if the server may still carry it out.
// The Release of each owner then waits until the attempt has ended, and what the server carries
// out after that is undone.
func (s *Store) recordUnsettled(err error, reqs []driver.Request) {
	late, left := errors.AsType[*leftError](err)
	if left && late.unsent || !left && (!errors.Is(err, driver.ErrUnreachable) || !unanswered(err) || neverSent(err)) {
		return
	}
	attempts := make([]func(bool), len(reqs))
	for i, req := range reqs {
		attempts[i] = s.attempts.Leave(req.Name, req.Owner)
	}
	end := func(answered bool) {
		for _, ended := range attempts {
			ended(answered)
		}
	}
	if !left {
		end(false)
		return
	}
	late.whenEnded(end)
}
