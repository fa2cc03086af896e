package redislock

import (
	"context"
	"errors"
	"net"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// unsettledError is the error of a call that the server may still carry out although
// its caller has left.
type unsettledError struct {
	cause  error // of the end of the caller's context
	sender *sender
	call   *call // nil if the call has ended without an answer
}

func (e *unsettledError) Error() string { return e.cause.Error() }
func (e *unsettledError) Unwrap() error { return e.cause }

// whenEnded calls f once, when the call has ended. answered is false if the server
// may carry it out later still. f must not call the sender.
func (e *unsettledError) whenEnded(f func(answered bool)) {
	if e.call == nil {
		f(false)
		return
	}
	e.sender.mu.Lock()
	defer e.sender.mu.Unlock()
	if e.call.state == over {
		f(e.call.answered)
		return
	}
	e.call.ended = f
}

// lateLocked notes the end of a call whose caller has left.
func (c *call) lateLocked() {
	c.state, c.answered = over, !mayBeCarriedOut(c.commands)
	if c.ended != nil {
		c.ended(c.answered)
	}
}

// mayBeCarriedOut reports whether the server may still carry out commands that have
// ended.
func mayBeCarriedOut(commands []redis.Cmder) bool {
	for _, cmd := range commands {
		if err := cmd.Err(); unanswered(err) && !neverSent(err) {
			return true
		}
	}
	return false
}

// neverSent reports whether the client failed before it had a connection.
func neverSent(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	return ok && network.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
}

// unsettled tells the log that the attempt of reqs failed with err, if the server may
// still carry it out. The Release of each owner then waits until the attempt has
// ended, and what is carried out after that is undone.
func (s *Store) unsettled(err error, reqs ...driver.Request) {
	late, left := errors.AsType[*unsettledError](err)
	if !left && (!errors.Is(err, driver.ErrUnreachable) || !unanswered(err) || neverSent(err)) {
		return
	}
	ended := make([]func(bool), len(reqs))
	for i, req := range reqs {
		ended[i] = s.attempts.Leave(req.Name, req.Owner)
	}
	end := func(answered bool) {
		for _, f := range ended {
			f(answered)
		}
	}
	if !left {
		end(false)
		return
	}
	late.whenEnded(end)
}

// undo releases what an attempt has acquired after its Release.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	return s.release(ctx, driver.Grant{Name: name, Owner: owner})
}
