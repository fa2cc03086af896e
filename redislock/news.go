package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// news tells those who wait of messages on their channels: over one connection
// for all names, and in a cluster one more to each server that has some of them,
// because Redisson publishes there in the one way or the other.
type news struct {
	client  redis.UniversalClient
	general *subscriber

	mu     sync.Mutex
	nodes  map[string]*subscriber // by address; only in a cluster
	closed bool
	done   chan struct{} // closed with it

	repairs sync.WaitGroup // subscriptions that look for the new home of their channel
}

func (n *news) init(client redis.UniversalClient) {
	n.client = client
	n.done = make(chan struct{})
	n.general = newSubscriber(func(ctx context.Context) *redis.PubSub {
		return client.Subscribe(ctx)
	}, false)
}

// Watch subscribes to the releases of the name, and a fair waiter to its turn.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	channel := s.channelOf(s.keyOf(req.Name))
	channels := []string{channel}
	if req.Fair {
		channels = append(channels, channel+":"+req.Owner.Hex())
	}
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for _, channel := range channels {
		more, err := s.news.subscribe(ctx, channel, wake)
		stops = append(stops, more...)
		if err != nil {
			stop()
			return nil, fmt.Errorf("subscribing to %q: %w", channel, explain(err))
		}
	}
	return stop, nil
}

func (n *news) subscribe(ctx context.Context, channel string, wake func()) (stops []func(), err error) {
	w := &watcher{wake: wake}
	if err := n.general.add(ctx, channel, w); err != nil {
		return nil, err
	}
	stops = append(stops, func() { n.general.remove(channel, w) })
	if cluster, ok := n.client.(clusterClient); ok {
		stop, err := n.subscribeNode(ctx, cluster, channel, wake)
		if err != nil {
			return stops, err
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

// subscribeNode subscribes on the server of the cluster that has the channel,
// and again when another one has it.
func (n *news) subscribeNode(ctx context.Context, cluster clusterClient, channel string, wake func()) (stop func(), err error) {
	var mu sync.Mutex
	var current *subscriber
	stopped := false
	w := &watcher{wake: wake}
	var attempt func(ctx context.Context) error
	attempt = func(ctx context.Context) error {
		sub, err := n.node(ctx, cluster, channel)
		if err == nil {
			err = sub.add(ctx, channel, w)
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			sub.remove(channel, w)
			return nil
		}
		current = sub
		return nil
	}
	w.lost = func() { // its server has failed, or has the channel no more
		n.repair(func(ctx context.Context) bool {
			mu.Lock()
			over := stopped
			mu.Unlock()
			if over {
				return true
			}
			cluster.ReloadState(ctx)
			err := attempt(ctx)
			wake() // what happened meanwhile is unknown
			return err == nil
		})
	}
	if err := attempt(ctx); err != nil {
		return nil, err
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		if current != nil {
			current.remove(channel, w)
		}
		w.silence()
	}, nil
}

// repair tries until it works.
func (n *news) repair(try func(context.Context) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.repairs.Go(func() {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
			worked := try(ctx)
			cancel()
			if worked {
				return
			}
			select {
			case <-time.After(maxReconnect):
			case <-n.done:
				return
			}
		}
	})
}

// node returns the subscriber to the server that has the channel.
func (n *news) node(ctx context.Context, cluster clusterClient, channel string) (*subscriber, error) {
	node, err := cluster.MasterForKey(ctx, channel)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, driver.ErrClosed
	}
	if n.nodes == nil {
		n.nodes = make(map[string]*subscriber)
	}
	addr := node.Options().Addr
	sub := n.nodes[addr]
	if sub == nil {
		sub = newSubscriber(func(ctx context.Context) *redis.PubSub {
			return node.SSubscribe(ctx)
		}, true)
		n.nodes[addr] = sub
	}
	return sub, nil
}

func (n *news) close() {
	n.mu.Lock()
	subs := []*subscriber{n.general}
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	for _, sub := range n.nodes {
		subs = append(subs, sub)
	}
	n.mu.Unlock()
	for _, sub := range subs {
		sub.close()
	}
	n.repairs.Wait()
}
