package redislock

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// shardedWatch watches one sharded channel. If the channel moves to another server, the watch moves
// too.
type shardedWatch struct {
	route   *route
	channel string
	wake    func()
	alone   bool

	mu      sync.Mutex
	subs    *subscriptions
	waiter  *waiter // in subs; each subscription has a new one
	stopped bool
}

// start subscribes. If the server does not know sharded channels, or does not allow them, the
// general subscription has to suffice.
func (s *shardedWatch) start(ctx context.Context) error {
	_, err := s.subscribe(ctx, nil)
	if err != nil {
		s.stop()
		s.route.reload(ctx)
	}
	return err
}

// subscribe replaces the waiter old, unless it was replaced already or the watch was stopped. It
// returns the waiter that has to be replaced if it failed.
func (s *shardedWatch) subscribe(ctx context.Context, old *waiter) (*waiter, error) {
	server, err := s.route.senderFor(ctx, s.channel)
	if err != nil {
		return old, err
	}
	subs := server.sharded()
	w := &waiter{wake: subscribers.New(s.wake), alone: s.alone}
	w.lost = func() { s.repair(w) }
	before, replaced := s.replace(old, subs, w)
	if !replaced {
		return old, nil
	}
	if before != nil {
		before.remove(s.channel, old)
	}
	err = subs.add(ctx, s.channel, w)
	if !s.has(w) { // stopped before it was added
		subs.remove(s.channel, w)
	}
	if isRefusal(err) {
		err = nil
	}
	return w, err
}

// has reports whether w is the present waiter of a watch that was not stopped.
func (s *shardedWatch) has(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiter == w && !s.stopped
}

func (s *shardedWatch) replace(old *waiter, subs *subscriptions, w *waiter) (before *subscriptions, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiter != old || s.stopped {
		return nil, false
	}
	before = s.subs
	s.subs, s.waiter = subs, w
	return before, true
}

// repair subscribes again, until that works, after w has lost its subscription.
func (s *shardedWatch) repair(w *waiter) {
	closed := s.route.tasks.ctx
	s.route.tasks.start(func() {
		for {
			ctx, cancel := context.WithTimeout(closed, subscribeTimeout)
			s.route.reload(ctx)
			var err error
			w, err = s.subscribe(ctx, w)
			cancel()
			w.wake.Notify() // messages may have been missed
			if err == nil || backoff.Sleep(closed, maxReconnect) != nil {
				return
			}
		}
	})
}

func (s *shardedWatch) stop() {
	s.mu.Lock()
	subs, w := s.subs, s.waiter
	s.stopped = true
	s.mu.Unlock()
	if subs != nil {
		subs.remove(s.channel, w)
	}
}
