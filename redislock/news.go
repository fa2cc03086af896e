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
	general *subscriber
	ctx     context.Context // done when it is closed
	cancel  context.CancelFunc

	mu     sync.Mutex
	nodes  map[string]node // by address; only in a cluster
	closed bool

	tasks sync.WaitGroup
}

// closeTimeout limits the wait for goroutines when a store is closed. Nothing
// can interrupt a client that logs in to a server which does not answer: it ends
// by its own timeout, and does nothing more.
const closeTimeout = 250 * time.Millisecond

func (n *news) init(client redis.UniversalClient) {
	n.ctx, n.cancel = context.WithCancel(context.Background())
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
	stops, err := s.news.subscribe(ctx, s.shards(), channel, wake, false)
	if err == nil && req.Fair {
		channel += ":" + req.Owner.Hex()
		var more []func()
		more, err = s.news.subscribe(ctx, s.shards(), channel, wake, true)
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

// subscribe subscribes to a channel, which may be used by this waiter alone: in general,
// and in a cluster, which is not nil there, at the server that has the channel.
func (n *news) subscribe(ctx context.Context, cluster clusterClient, channel string, wake func(), alone bool) (stops []func(), err error) {
	w := &watcher{wake: wake, alone: alone}
	if err := n.general.add(ctx, channel, w); err != nil {
		return nil, err
	}
	stops = append(stops, func() { n.general.remove(channel, w) })
	if cluster != nil {
		shard := &shardWatch{news: n, cluster: cluster, channel: channel, wake: wake, alone: alone}
		if err := shard.start(ctx); err != nil {
			return stops, err
		}
		stops = append(stops, shard.stop)
	}
	return stops, nil
}

// start runs a task that close waits for, unless it is closed.
func (n *news) start(task func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.tasks.Go(task)
	return true
}

func (n *news) close() {
	n.mu.Lock()
	n.closed = true
	subs := []*subscriber{n.general}
	for _, node := range n.nodes {
		subs = append(subs, node.sub)
	}
	n.mu.Unlock()
	n.cancel()
	for _, sub := range subs {
		sub.close(driver.ErrClosed)
	}
	ended := make(chan struct{})
	go func() {
		for _, sub := range subs {
			sub.loop.Wait()
		}
		n.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}
