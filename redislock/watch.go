package redislock

import (
	"context"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/redis/go-redis/v9"
)

// Watch subscribes to the releases of the name. A fair waiter is also notified when it moves to
// the head of the queue.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	channel := s.channelOf(s.keyOf(req.Name))
	stops, err := s.pubsub.subscribe(ctx, s.masters(), channel, wake, false)
	if err == nil && req.Fair {
		channel += ":" + req.Owner.Hex()
		var more []func()
		more, err = s.pubsub.subscribe(ctx, s.masters(), channel, wake, true)
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

// pubsub notifies waiters of messages on their channels. It has one connection for all names. In
// a cluster it has one more to each server with some of the sharded channels: depending on its
// version, Redisson publishes to all servers or to the sharded channel.
type pubsub struct {
	general *subscriptions
	tasks   *tasks

	mu      sync.Mutex
	servers map[string]shardedSubs // by address; only in a cluster
}

func newPubsub(client redis.UniversalClient) *pubsub {
	return &pubsub{tasks: newTasks(), general: newSubscriptions(func(ctx context.Context) *redis.PubSub {
		return client.Subscribe(ctx)
	}, false)}
}

// waiter is a caller that waits for messages on one channel.
type waiter struct {
	wake  *subscribers.Subscriber
	lost  *subscribers.Subscriber // notified when its subscription has ended
	alone bool                    // no other waiter uses its channel, now or later
}

// newWaiter returns a waiter that also wakes up if its subscription ends.
func newWaiter(wake func(), alone bool) *waiter {
	s := subscribers.New(wake)
	return &waiter{wake: s, lost: s, alone: alone}
}

// stop ends the notifications. No call of wake is under way when it returns.
func (w *waiter) stop() {
	w.wake.Stop()
	w.lost.Stop()
}

// subscribe subscribes to a channel and, if masters is not nil, to the sharded channel of the same
// name. The stops are valid after an error too.
func (p *pubsub) subscribe(ctx context.Context, masters masterFinder, channel string, wake func(), alone bool) (stops []func(), err error) {
	w := newWaiter(wake, alone)
	if err := p.general.add(ctx, channel, w); err != nil {
		return nil, err
	}
	stops = append(stops, func() { p.general.remove(channel, w) })
	if masters != nil {
		sharded := &shardedWatch{pubsub: p, masters: masters, channel: channel, wake: wake, alone: alone}
		if err := sharded.start(ctx); err != nil {
			return stops, err
		}
		stops = append(stops, sharded.stop)
	}
	return stops, nil
}

func (p *pubsub) close() {
	p.tasks.close()
	p.mu.Lock()
	all := []*subscriptions{p.general}
	for _, server := range p.servers {
		all = append(all, server.subs)
	}
	p.mu.Unlock()
	for _, subs := range all {
		subs.close(driver.ErrClosed)
	}
	waitBriefly(func() {
		for _, subs := range all {
			subs.loop.Wait()
		}
		p.tasks.running.Wait()
	})
}
