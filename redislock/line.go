package redislock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is one connection for messages. One goroutine writes requests and tests
// whether the server is there; another one reads. Whatever fails ends the line:
// the client would connect again by itself, and nobody would know that messages
// were missed.
type line struct {
	sub    *subscriber
	pubsub *redis.PubSub
	ctx    context.Context
	end    context.CancelCauseFunc
	heard  atomic.Bool // something, since the last test

	unanswered []request // guarded by the subscriber's mutex
}

// request is a command. The server answers each of them, in order.
type request struct {
	verb    verb
	name    string
	channel *channel // of subscribe
}

type verb int

const (
	subscribe verb = iota
	unsubscribe
	ping
)

// Why lines end.
var (
	errUnneeded    = errors.New("nobody waits")
	errSilent      = errors.New("the server does not answer")
	errReconnected = errors.New("the client has connected again")
)

// newLine is for a subscriber that has requests.
func newLine(s *subscriber) *line {
	l := &line{sub: s}
	l.ctx, l.end = context.WithCancelCause(s.ctx)
	l.pubsub = s.open(l.ctx)
	return l
}

// serve works until the line ends, and returns why.
func (l *line) serve() error {
	var both sync.WaitGroup
	both.Go(func() {
		err := l.flush() // opens the connection
		if err == nil {
			both.Go(func() { l.end(l.read()) })
			err = l.write()
		}
		l.end(err)
	})
	<-l.ctx.Done()
	_ = l.pubsub.Close() // ends the reading
	both.Wait()
	return context.Cause(l.ctx)
}

// write sends requests as they come, and tidies.
func (l *line) write() error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	tested := false
	for {
		select {
		case <-l.sub.asked:
		case <-tick.C:
			if l.sub.tidy() {
				return errUnneeded
			}
			if !l.heard.Swap(false) && tested {
				return errSilent
			}
			tested = true
			l.sub.mu.Lock()
			l.sub.askLocked(request{verb: ping})
			l.sub.mu.Unlock()
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
}

// flush sends the requests. Each is a command of its own, so that the server
// refuses one channel and not others with it.
func (l *line) flush() error {
	l.sub.mu.Lock()
	requests := l.sub.requests
	l.sub.requests = nil
	l.unanswered = append(l.unanswered, requests...)
	l.sub.mu.Unlock()
	for _, r := range requests {
		if err := l.send(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *line) send(r request) error {
	ctx, cancel := context.WithTimeout(l.ctx, subscribeTimeout)
	defer cancel()
	switch sharded := l.sub.sharded; {
	case r.verb == ping:
		return l.pubsub.Ping(ctx)
	case r.verb == subscribe && sharded:
		return l.pubsub.SSubscribe(ctx, r.name)
	case r.verb == subscribe:
		return l.pubsub.Subscribe(ctx, r.name)
	case sharded:
		return l.pubsub.SUnsubscribe(ctx, r.name)
	default:
		return l.pubsub.Unsubscribe(ctx, r.name)
	}
}

// read hands on what the server sends.
func (l *line) read() error {
	for {
		message, err := l.pubsub.Receive(l.ctx)
		if err == nil {
			err = l.take(message)
		} else {
			err = l.takeError(err)
		}
		if err != nil {
			return err
		}
		l.heard.Store(true)
	}
}

func (l *line) take(message any) error {
	switch m := message.(type) {
	case *redis.Message:
		l.sub.tell(m.Channel)
	case *redis.Pong:
		l.answered(func(r request) bool { return r.verb == ping })
	case *redis.Subscription:
		verb := unsubscribe
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			verb = subscribe
		}
		r, wanted := l.answered(func(r request) bool { return r.verb == verb && r.name == m.Channel })
		switch {
		case wanted && verb == subscribe:
			l.sub.confirmed(r.channel)
		case wanted:
		case verb == unsubscribe && l.sub.sharded:
			l.sub.ended(m.Channel)
		default:
			return errReconnected // the client asked for it, not this line
		}
	}
	return nil
}

// takeError takes the refusal of a request. Other errors end the line.
func (l *line) takeError(err error) error {
	if !isRefusal(err) {
		return err
	}
	r, wanted := l.answered(func(request) bool { return true })
	if !wanted {
		return err
	}
	if r.verb == subscribe {
		l.sub.refused(r.name, r.channel, err)
	}
	return nil
}

// answered takes the oldest request from the list, if the answer fits.
func (l *line) answered(fits func(request) bool) (request, bool) {
	l.sub.mu.Lock()
	defer l.sub.mu.Unlock()
	if len(l.unanswered) == 0 || !fits(l.unanswered[0]) {
		return request{}, false
	}
	r := l.unanswered[0]
	l.unanswered = l.unanswered[1:]
	return r, true
}

// isRefusal says that the server does not allow a command, or does not know it.
func isRefusal(err error) bool {
	if _, reply := errors.AsType[redis.Error](err); !reply {
		return false
	}
	return strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR unknown command")
}
