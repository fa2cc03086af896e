package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/redis/go-redis/v9"
)

// shardWatch watches one channel at the server of a cluster that has it. If the channel moves to
// another server, the watch moves too.
type shardWatch struct {
	pubsub  *pubsub
	cluster shardFinder
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
func (s *shardWatch) start(ctx context.Context) error {
	_, err := s.subscribe(ctx, nil)
	if err != nil {
		s.stop()
		s.cluster.ReloadState(ctx) // in the background
	}
	return err
}

// subscribe replaces the waiter old, unless it was replaced already or the watch was stopped. It
// returns the waiter that has to be replaced if it failed.
func (s *shardWatch) subscribe(ctx context.Context, old *waiter) (*waiter, error) {
	subs, err := s.pubsub.node(ctx, s.cluster, s.channel)
	if err != nil {
		return old, err
	}
	w := &waiter{wake: subscribers.New(s.wake), alone: s.alone}
	w.lost = subscribers.New(func() { s.repair(w) })
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
func (s *shardWatch) has(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiter == w && !s.stopped
}

func (s *shardWatch) replace(old *waiter, subs *subscriptions, w *waiter) (before *subscriptions, replaced bool) {
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
func (s *shardWatch) repair(w *waiter) {
	closed := s.pubsub.tasks.ctx
	s.pubsub.tasks.start(func() {
		for {
			ctx, cancel := context.WithTimeout(closed, subscribeTimeout)
			s.cluster.ReloadState(ctx)
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

func (s *shardWatch) stop() {
	s.mu.Lock()
	subs, w := s.subs, s.waiter
	s.stopped = true
	s.mu.Unlock()
	if subs != nil {
		subs.remove(s.channel, w)
	}
}

// node is a server of a cluster.
type node struct {
	client *redis.Client
	subs   *subscriptions
}

// errReplaced: the cluster's client has replaced the client of a server.
var errReplaced = errors.New("the client connects to the server anew")

// node returns the subscriptions at the server that has the channel.
func (p *pubsub) node(ctx context.Context, cluster shardFinder, channel string) (*subscriptions, error) {
	var client *redis.Client
	err := p.tasks.call(ctx, func() error { // the search for the server ignores the context
		found, err := cluster.MasterForKey(ctx, channel)
		if err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
		}
		client = found
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks.closed() {
		return nil, driver.ErrClosed
	}
	addr := client.Options().Addr
	known := p.nodes[addr]
	if known.client == client {
		return known.subs, nil
	}
	if known.subs != nil { // its client is closed, or will be
		known.subs.close(errReplaced)
		p.tasks.start(known.subs.loop.Wait)
	}
	if p.nodes == nil {
		p.nodes = make(map[string]node)
	}
	subs := newSubscriptions(func(ctx context.Context) *redis.PubSub { return client.SSubscribe(ctx) }, true)
	p.nodes[addr] = node{client, subs}
	return subs, nil
}

// shardFinder finds the server of a cluster that has a key or a channel.
type shardFinder interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// shards returns nil if there are no shards, or if only the client can find them.
func (s *Store) shards() shardFinder {
	if s.route.cluster != nil {
		return s.route.cluster
	}
	if one, ok := s.client.(*redis.Client); ok && s.cluster.Load() {
		return oneShard{one}
	}
	return nil
}

// oneShard is the only server of a cluster, or the only one that its client knows.
type oneShard struct{ client *redis.Client }

func (o oneShard) MasterForKey(context.Context, string) (*redis.Client, error) { return o.client, nil }

func (oneShard) ReloadState(context.Context) {}
