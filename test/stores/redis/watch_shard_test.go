package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// forgetful is a client of Cluster that replaces the client of a server on request, as
// redis.ClusterClient does after a server was away.
type forgetful struct {
	*redis.ClusterClient
	t    *testing.T
	gate sync.Mutex // blocks MasterForKey

	tooLate atomic.Bool // the next client that MasterForKey returns is closed

	mu      sync.Mutex
	clients map[string]*redis.Client
}

func newForgetful(t *testing.T, c *servers.Cluster) *forgetful {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Nodes.Addrs()})
	f := &forgetful{ClusterClient: cluster, t: t, clients: make(map[string]*redis.Client)}
	t.Cleanup(func() {
		f.forget()
		cluster.Close()
	})
	return f
}

func (f *forgetful) MasterForKey(ctx context.Context, key string) (*redis.Client, error) {
	f.gate.Lock()
	defer f.gate.Unlock()
	node, err := f.ClusterClient.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	addr := node.Options().Addr
	client := f.clients[addr]
	if client == nil {
		options := *node.Options()
		options.MaintNotificationsConfig = nil // the other client may be changing it
		client = redis.NewClient(&options)
		f.clients[addr] = client
	}
	if f.tooLate.Swap(false) {
		client.Close()
		delete(f.clients, addr)
	}
	return client, nil
}

// forget closes the present clients of all servers.
func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, client := range f.clients {
		client.Close()
	}
	clear(f.clients)
}

// shardSubscribers counts the subscribers on the server that has the channel.
func (f *forgetful) shardSubscribers(channel string) int64 {
	f.t.Helper()
	node, err := f.ClusterClient.MasterForKey(f.t.Context(), channel)
	if err != nil {
		f.t.Fatal(err)
	}
	n, err := node.PubSubShardNumSub(f.t.Context(), channel).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return n[channel]
}

// TestSubscriptionFollowsAReplacedClient: a subscription moves to the new client of a server, and
// no subscription remains after the last waiter has left.
func TestSubscriptionFollowsAReplacedClient(t *testing.T) {
	t.Parallel()
	const channel = "redisson_lock__channel:{back}"
	client := newForgetful(t, servers.RunCluster(t, inMemory...))
	store := storeOver(t, client, nil)
	woken, stop := watch(t, store, driver.Request{Name: "back", Owner: driver.NewOwner()})
	for range 3 {
		client.forget()
		eventually(t, "it is subscribed by the new client", func() bool { return client.shardSubscribers(channel) == 1 })
		_, another := watch(t, store, driver.Request{Name: "back", Owner: driver.NewOwner()})
		another()
		eventually(t, "a message wakes", func() bool {
			must(t, client.SPublish(t.Context(), channel, "0").Err())
			select {
			case <-woken:
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
	}
	stop()
	eventually(t, "no connection is subscribed", func() bool { return client.shardSubscribers(channel) == 0 })
}
