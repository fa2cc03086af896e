package redislock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Watch subscribes to the releases of the name. A fair waiter is also notified when it moves to
// the head of the queue.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	channel := s.channelOf(s.keyOf(req.Name))
	stops, err := s.subscribe(ctx, channel, wake, false)
	if err == nil && req.Fair {
		channel += ":" + req.Owner.Hex()
		var more []func()
		more, err = s.subscribe(ctx, channel, wake, true)
		stops = append(stops, more...)
	}
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("subscribing to %q: %w", channel, explain(err))
	}
	return stop, nil
}

// subscribe subscribes to a channel. In a cluster it also subscribes to the sharded channel of the
// same name: depending on its version, Redisson publishes to all servers or to the sharded channel.
// The stops are valid after an error too.
func (s *Store) subscribe(ctx context.Context, channel string, wake func(), alone bool) (stops []func(), err error) {
	w := newWaiter(wake, alone)
	if err := s.general.add(ctx, channel, w); err != nil {
		return nil, err
	}
	stops = append(stops, func() { s.general.remove(channel, w) })
	if s.clustered.Load() && !s.hidesCluster() {
		sharded := &shardedWatch{route: s.route, channel: channel, wake: wake, alone: alone}
		if err := sharded.start(ctx); err != nil {
			return stops, err
		}
		stops = append(stops, sharded.stop)
	}
	return stops, nil
}

// waiter is a caller that waits for messages on one channel.
type waiter struct {
	wake  *subscribers.Subscriber
	lost  func() // called when the waiter's subscription has ended; must not block
	alone bool   // no other waiter uses its channel, now or later
}

// newWaiter returns a waiter that also wakes up if its subscription ends.
func newWaiter(wake func(), alone bool) *waiter {
	w := subscribers.New(wake)
	return &waiter{wake: w, lost: w.Notify, alone: alone}
}
