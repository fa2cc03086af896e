package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// shardWatch watches one channel on the server of a cluster that has it, and
// moves with it to another.
type shardWatch struct {
	news    *news
	cluster clusterClient
	channel string
	wake    func()
	alone   bool

	mu      sync.Mutex
	sub     *subscriber
	watcher *watcher // at sub; each subscription has its own
	stopped bool
}

// start subscribes. Where the server does not know sharded channels, or does not
// allow them, the general subscription has to do.
func (s *shardWatch) start(ctx context.Context) error {
	_, err := s.subscribe(ctx, nil)
	if err != nil {
		s.stop()
		s.cluster.ReloadState(ctx) // in the background
	}
	return err
}

// subscribe replaces the watcher old, unless another one has already or it is
// over. It returns the watcher that is to be replaced if it failed.
func (s *shardWatch) subscribe(ctx context.Context, old *watcher) (*watcher, error) {
	if !s.has(old) {
		return old, nil
	}
	sub, err := s.news.node(ctx, s.cluster, s.channel)
	if err != nil {
		return old, err
	}
	w := &watcher{wake: s.wake, alone: s.alone}
	w.lost = func() { s.repair(w) }
	before, replaced := s.replace(old, sub, w)
	if !replaced {
		return old, nil
	}
	if before != nil {
		before.remove(s.channel, old)
	}
	err = sub.add(ctx, s.channel, w)
	if !s.has(w) { // stopped before it was added
		sub.remove(s.channel, w)
	}
	if isRefusal(err) {
		err = nil
	}
	return w, err
}

// has says whether w is the present watcher, and needed.
func (s *shardWatch) has(w *watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watcher == w && !s.stopped
}

func (s *shardWatch) replace(old *watcher, sub *subscriber, w *watcher) (before *subscriber, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watcher != old || s.stopped {
		return nil, false
	}
	before = s.sub
	s.sub, s.watcher = sub, w
	return before, true
}

// repair subscribes again after w has lost its server, or the server the channel.
func (s *shardWatch) repair(w *watcher) {
	s.news.repair(func(ctx context.Context) bool {
		s.cluster.ReloadState(ctx)
		var err error
		w, err = s.subscribe(ctx, w)
		w.call(s.wake) // what happened meanwhile is unknown
		return err == nil
	})
}

func (s *shardWatch) stop() {
	s.mu.Lock()
	sub, w := s.sub, s.watcher
	s.stopped = true
	s.mu.Unlock()
	if sub != nil {
		sub.remove(s.channel, w)
	}
}

// repair tries until it works.
func (n *news) repair(try func(context.Context) bool) {
	n.start(func() {
		for {
			ctx, cancel := context.WithTimeout(n.ctx, subscribeTimeout)
			worked := try(ctx)
			cancel()
			if worked {
				return
			}
			select {
			case <-time.After(maxReconnect):
			case <-n.ctx.Done():
				return
			}
		}
	})
}

// node is a server of a cluster.
type node struct {
	client *redis.Client
	sub    *subscriber
}

// errReplaced: the client has forgotten a server and found it again.
var errReplaced = errors.New("the client connects to the server anew")

// node returns the subscriber to the server that has the channel.
func (n *news) node(ctx context.Context, cluster clusterClient, channel string) (*subscriber, error) {
	client, err := n.master(ctx, cluster, channel)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, driver.ErrClosed
	}
	addr := client.Options().Addr
	known := n.nodes[addr]
	if known.client == client {
		return known.sub, nil
	}
	if known.sub != nil { // its client is closed, or will be
		known.sub.close(errReplaced)
		n.tasks.Go(known.sub.loop.Wait)
	}
	if n.nodes == nil {
		n.nodes = make(map[string]node)
	}
	sub := newSubscriber(func(ctx context.Context) *redis.PubSub {
		return client.SSubscribe(ctx)
	}, true)
	n.nodes[addr] = node{client, sub}
	return sub, nil
}

// master returns the client of the server that has the channel. A client that
// does not know its cluster yet asks for it, and that may outlast the context.
func (n *news) master(ctx context.Context, cluster clusterClient, channel string) (*redis.Client, error) {
	type answer struct {
		client *redis.Client
		err    error
	}
	found := make(chan answer, 1)
	if !n.start(func() {
		client, err := cluster.MasterForKey(ctx, channel)
		found <- answer{client, err}
	}) {
		return nil, driver.ErrClosed
	}
	select {
	case a := <-found:
		if a.err != nil {
			return nil, fmt.Errorf("%w: %w", driver.ErrUnreachable, a.err)
		}
		return a.client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.ctx.Done():
		return nil, driver.ErrClosed
	}
}
