package redislock

import (
	"context"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Watch subscribes to the releases of the name. A fair waiter is also notified when it moves to
// the head of the queue. In a cluster Watch also subscribes to the sharded channel of the same name:
// depending on its version, Redisson publishes to all servers or to the sharded channel.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	channels := []string{s.channelOf(s.keyOf(req.Name))}
	if req.Fair {
		channels = append(channels, channels[0]+":"+req.Owner.Hex())
	}
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for i, channel := range channels {
		w := newWaiter(s.general, channel, wake, i > 0)
		err := w.start(ctx)
		stops = append(stops, w.stop)
		if err == nil && s.clustered.Load() && !s.hidesCluster() {
			sharded := &shardedWatch{route: s.route, channel: channel, wake: wake, alone: i > 0}
			if _, err = sharded.subscribe(ctx, nil); err != nil {
				s.route.reload(ctx)
			}
			stops = append(stops, sharded.stop)
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("subscribing to %q: %w", channel, explain(err))
		}
	}
	return stop, nil
}

// waiter is a caller that waits for messages on one channel.
type waiter struct {
	subs    *subscriptions
	channel string
	wake    *subscribers.Subscriber
	lost    func() // called when the waiter's subscription has ended; must not block
	alone   bool   // no other waiter uses its channel, now or later
	stopped bool   // guarded by the mutex of subs
}

// newWaiter returns a waiter that also wakes up if its subscription ends.
func newWaiter(subs *subscriptions, channel string, wake func(), alone bool) *waiter {
	w := subscribers.New(wake)
	return &waiter{subs: subs, channel: channel, wake: w, lost: w.Notify, alone: alone}
}

// shardedWatch watches one sharded channel. If the channel moves to another server, the watch moves
// too.
type shardedWatch struct {
	route   *route
	channel string
	wake    func()
	alone   bool

	mu      sync.Mutex
	waiter  *waiter // each subscription has a new one
	stopped bool
}

// subscribe replaces the waiter old, unless it was replaced already or the watch was stopped. It
// returns the waiter that has to be replaced if it failed.
func (s *shardedWatch) subscribe(ctx context.Context, old *waiter) (*waiter, error) {
	server, err := s.route.senderFor(ctx, s.channel)
	if err != nil {
		return old, err
	}
	w := newWaiter(server.sharded(), s.channel, s.wake, s.alone)
	w.lost = func() { s.repair(w) }
	if !s.replace(old, w) {
		return old, nil
	}
	if old != nil {
		old.stop()
	}
	if err = w.start(ctx); isRefusal(err) {
		err = nil // the general subscription has to suffice
	}
	return w, err
}

func (s *shardedWatch) replace(old, w *waiter) (replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiter != old || s.stopped {
		return false
	}
	s.waiter = w
	return true
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
	w := s.waiter
	s.stopped = true
	s.mu.Unlock()
	if w != nil {
		w.stop()
	}
}
