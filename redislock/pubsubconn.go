package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pubsubConn is one pub/sub connection. One goroutine writes requests and tests whether the server
// answers; another one reads. Every failure ends the connection. The client would reconnect by
// itself, and missed messages would go unnoticed.
type pubsubConn struct {
	subs   *subscriptions
	pubsub *redis.PubSub
	ctx    context.Context
	end    context.CancelCauseFunc
	heard  atomic.Bool // the server sent something since the last test

	unanswered []request // guarded by the mutex of subs
}

// request is a command. The server answers each request, in order.
type request struct {
	command string // "ping", or that of the subscriptions
	channel string
	sub     *subscription // to be confirmed; nil for other commands
}

// The reasons why a connection ends.
var (
	errIdle        = errors.New("no caller waits")
	errSilent      = errors.New("the server does not answer")
	errReconnected = errors.New("the client has reconnected")
)

func newPubsubConn(s *subscriptions) *pubsubConn {
	c := &pubsubConn{subs: s}
	c.ctx, c.end = context.WithCancelCause(s.ctx)
	c.pubsub = s.open(c.ctx)
	return c
}

// serve blocks until the connection ends, and returns the reason.
func (c *pubsubConn) serve() error {
	var both sync.WaitGroup
	both.Go(func() {
		err := c.flush() // opens the connection
		if err == nil {
			both.Go(func() { c.end(c.read()) })
			err = c.write()
		}
		c.end(err)
	})
	<-c.ctx.Done()
	_ = c.pubsub.Close() // ends the reading
	both.Wait()
	return context.Cause(c.ctx)
}

// write sends requests. On every heartbeat it tests the server and leaves idle channels.
func (c *pubsubConn) write() error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	tested := false
	for {
		select {
		case <-c.subs.requested:
		case <-tick.C:
			c.subs.mu.Lock()
			idle := c.subs.unsubscribeIdleLocked()
			c.subs.requestLocked(request{command: "ping"})
			c.subs.mu.Unlock()
			if idle {
				return errIdle
			}
			if !c.heard.Swap(false) && tested {
				return errSilent
			}
			tested = true
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
}

// flush sends the requests. Each is a command of its own, so that the server can refuse one
// channel and accept the others.
func (c *pubsubConn) flush() error {
	c.subs.mu.Lock()
	requests := c.subs.requests
	c.subs.requests = nil
	c.unanswered = append(c.unanswered, requests...)
	c.subs.mu.Unlock()
	for _, r := range requests {
		if err := c.send(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *pubsubConn) send(r request) error {
	ctx, cancel := context.WithTimeout(c.ctx, subscribeTimeout)
	defer cancel()
	switch r.command {
	case "subscribe":
		return c.pubsub.Subscribe(ctx, r.channel)
	case "ssubscribe":
		return c.pubsub.SSubscribe(ctx, r.channel)
	case "unsubscribe":
		return c.pubsub.Unsubscribe(ctx, r.channel)
	case "sunsubscribe":
		return c.pubsub.SUnsubscribe(ctx, r.channel)
	default:
		return c.pubsub.Ping(ctx)
	}
}

// read handles what the server sends, until the connection ends.
func (c *pubsubConn) read() error {
	for {
		message, err := c.pubsub.Receive(c.ctx)
		switch {
		case err == nil:
			err = c.handle(message)
		case isRefusal(err):
			err = c.handleRefusal(err)
		}
		if err != nil {
			return err
		}
		c.heard.Store(true)
	}
}

func (c *pubsubConn) handle(message any) error {
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if sub := c.subs.byChannel[m.Channel]; sub != nil {
			sub.notifyLocked()
		}
	case *redis.Pong:
		c.popRequestLocked(func(r request) bool { return r.command == "ping" })
	case *redis.Subscription:
		r, requested := c.popRequestLocked(func(r request) bool { return r.command == m.Kind && r.channel == m.Channel })
		switch {
		case requested && r.sub != nil:
			r.sub.confirmLocked()
		case requested:
		case m.Kind == "sunsubscribe": // the channel has moved
			if sub := c.subs.byChannel[m.Channel]; sub != nil && sub.active {
				c.subs.endLocked(m.Channel, sub, nil)
			}
		default:
			return errReconnected // the client requested it, not this connection
		}
	}
	return nil
}

// handleRefusal ends the request that the server has refused. It returns err if there is none.
func (c *pubsubConn) handleRefusal(err error) error {
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	r, requested := c.popRequestLocked(func(request) bool { return true })
	if !requested {
		return err
	}
	if r.sub != nil {
		c.subs.endLocked(r.channel, r.sub, err)
	}
	return nil
}

// popRequestLocked removes the oldest request from the list, if the answer matches it.
func (c *pubsubConn) popRequestLocked(matches func(request) bool) (request, bool) {
	if len(c.unanswered) == 0 || !matches(c.unanswered[0]) {
		return request{}, false
	}
	r := c.unanswered[0]
	c.unanswered = c.unanswered[1:]
	return r, true
}
