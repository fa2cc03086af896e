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
	stops, err := s.pubsub.subscribe(ctx, s.shards(), channel, wake, false)
	if err == nil && req.Fair {
		channel += ":" + req.Owner.Hex()
		var more []func()
		more, err = s.pubsub.subscribe(ctx, s.shards(), channel, wake, true)
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
// a cluster it has one more to each server with some of the channels: depending on its version,
// Redisson publishes to the whole cluster or to the shard.
type pubsub struct {
	general *subscriptions
	tasks   *tasks

	mu    sync.Mutex
	nodes map[string]node // by address; only in a cluster
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

// subscribe subscribes to a channel: in general and, if cluster is not nil, at the server that
// has the channel. The stops are valid after an error too.
func (p *pubsub) subscribe(ctx context.Context, cluster shardFinder, channel string, wake func(), alone bool) (stops []func(), err error) {
	w := newWaiter(wake, alone)
	if err := p.general.add(ctx, channel, w); err != nil {
		return nil, err
	}
	stops = append(stops, func() { p.general.remove(channel, w) })
	if cluster != nil {
		shard := &shardWatch{pubsub: p, cluster: cluster, channel: channel, wake: wake, alone: alone}
		if err := shard.start(ctx); err != nil {
			return stops, err
		}
		stops = append(stops, shard.stop)
	}
	return stops, nil
}

func (p *pubsub) close() {
	p.tasks.close()
	p.mu.Lock()
	all := []*subscriptions{p.general}
	for _, node := range p.nodes {
		all = append(all, node.subs)
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
