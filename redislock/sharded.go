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

// shardedWatch watches one sharded channel. If the channel moves to another server, the watch moves
// too.
type shardedWatch struct {
	pubsub  *pubsub
	masters masterFinder
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
		s.masters.ReloadState(ctx) // in the background
	}
	return err
}

// subscribe replaces the waiter old, unless it was replaced already or the watch was stopped. It
// returns the waiter that has to be replaced if it failed.
func (s *shardedWatch) subscribe(ctx context.Context, old *waiter) (*waiter, error) {
	subs, err := s.pubsub.at(ctx, s.masters, s.channel)
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
	closed := s.pubsub.tasks.ctx
	s.pubsub.tasks.start(func() {
		for {
			ctx, cancel := context.WithTimeout(closed, subscribeTimeout)
			s.masters.ReloadState(ctx)
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

// shardedSubs are the subscriptions at one server.
type shardedSubs struct {
	client *redis.Client
	subs   *subscriptions
}

// errReplaced: the cluster's client has replaced the client of a server.
var errReplaced = errors.New("the client connects to the server anew")

// at returns the subscriptions at the server that has the channel.
func (p *pubsub) at(ctx context.Context, masters masterFinder, channel string) (*subscriptions, error) {
	var client *redis.Client
	err := p.tasks.call(ctx, func() error { // the search for the server ignores the context
		found, err := masters.MasterForKey(ctx, channel)
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
	known := p.servers[addr]
	if known.client == client {
		return known.subs, nil
	}
	if known.subs != nil { // its client is closed, or will be
		known.subs.close(errReplaced)
		p.tasks.start(known.subs.loop.Wait)
	}
	if p.servers == nil {
		p.servers = make(map[string]shardedSubs)
	}
	subs := newSubscriptions(func(ctx context.Context) *redis.PubSub { return client.SSubscribe(ctx) }, true)
	p.servers[addr] = shardedSubs{client, subs}
	return subs, nil
}

// masterFinder finds the server that has a key or a sharded channel.
type masterFinder interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// masters returns nil without sharded channels, or if only the client can find their servers.
func (s *Store) masters() masterFinder {
	if s.route.cluster != nil {
		return s.route.cluster
	}
	if one, ok := s.client.(*redis.Client); ok && s.clustered.Load() {
		return onlyMaster{one}
	}
	return nil
}

// onlyMaster is the only server of a cluster, or the only one that a *redis.Client knows.
type onlyMaster struct{ client *redis.Client }

func (o onlyMaster) MasterForKey(context.Context, string) (*redis.Client, error) {
	return o.client, nil
}

func (onlyMaster) ReloadState(context.Context) {}
