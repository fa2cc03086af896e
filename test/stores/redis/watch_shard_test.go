package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// forgetful is a client of Cluster that makes another client for a server when it
// is told to, as clients do with a server that has been away.
type forgetful struct {
	*redis.ClusterClient
	t    *testing.T
	gate sync.Mutex // who has it lets nobody look for servers

	tooLate atomic.Bool // the next client that is asked for is closed before it can be used

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
		client = redis.NewClient(&options)
		f.clients[addr] = client
	}
	if f.tooLate.Swap(false) {
		client.Close()
		delete(f.clients, addr)
	}
	return client, nil
}

// forget closes the clients there are.
func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, client := range f.clients {
		client.Close()
	}
	clear(f.clients)
}

// shardSubscribers counts who is subscribed on the server that has the channel.
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

// TestClusterServerComesBack: a subscription moves to the new client of a server,
// and none is left when nobody waits. Nobody is woken who has left.
func TestClusterServerComesBack(t *testing.T) {
	t.Parallel()
	const channel = "redisson_lock__channel:{back}"
	client := newForgetful(t, servers.RunCluster(t, inMemory...))
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	woken, stop := watch(t, store, driver.Request{Name: "back", Owner: driver.NewOwner()})
	for range 3 {
		client.forget()
		eventually(t, "it is subscribed by the new client", func() bool { return client.shardSubscribers(channel) == 1 })
		_, another := watch(t, store, driver.Request{Name: "back", Owner: driver.NewOwner()})
		another()
		eventually(t, "a message wakes", func() bool {
			if err := client.SPublish(t.Context(), channel, "0").Err(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-woken:
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
	}
	stop()
	eventually(t, "nobody is subscribed", func() bool { return client.shardSubscribers(channel) == 0 })
}

// TestNobodyIsWokenWhoHasLeft, also not by a subscription that just looks for
// its server.
func TestNobodyIsWokenWhoHasLeft(t *testing.T) {
	t.Parallel()
	client := newForgetful(t, servers.RunCluster(t, inMemory...))
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var left, woken atomic.Bool
	stop, err := store.Watch(t.Context(), driver.Request{Name: "left", Owner: driver.NewOwner()}, func() {
		if left.Load() {
			woken.Store(true)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const channel = "redisson_lock__channel:{left}"
	client.gate.Lock()
	client.forget()
	eventually(t, "the subscription is lost", func() bool { return client.shardSubscribers(channel) == 0 })
	stop()
	left.Store(true)
	client.gate.Unlock()
	if err := store.Close(); err != nil { // waits for it
		t.Fatal(err)
	}
	if woken.Load() {
		t.Error("a waiter was woken after it had left")
	}
}

// TestLostOverAndOver: whatever comes between, one subscription is left, and none
// when nobody waits.
func TestLostOverAndOver(t *testing.T) {
	t.Parallel()
	const channel = "redisson_lock__channel:{often}"
	client := newForgetful(t, servers.RunCluster(t, inMemory...))
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var stops []func()
	for range 20 {
		_, stop := watch(t, store, driver.Request{Name: "often", Owner: driver.NewOwner()})
		stops = append(stops, stop)
	}
	node, err := client.ClusterClient.MasterForKey(t.Context(), channel)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if err := node.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it is subscribed once", func() bool { return client.shardSubscribers(channel) == 1 })
	for _, stop := range stops {
		stop()
	}
	eventually(t, "nobody is subscribed", func() bool { return client.shardSubscribers(channel) == 0 })
}

// TestNodeClientClosedInBetween: a client of one server that the cluster's client
// closes, because it has found another server instead, does not make the store closed.
// When the cluster's client is closed, the store is.
func TestNodeClientClosedInBetween(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	for _, replicas := range []int{0, 1} {
		client := newForgetful(t, c)
		store, err := redislock.New(client, &redislock.Options{Replicas: replicas})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		req := driver.Request{Name: "between", Owner: driver.NewOwner(), TTL: time.Minute}
		if _, err := store.Acquire(t.Context(), req); err != nil { // the client knows its cluster
			t.Fatal(err)
		}
		client.tooLate.Store(true)
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		client.tooLate.Store(true)
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Errorf("Renew: %v", errs)
		}
		client.tooLate.Store(true)
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	closed := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Nodes.Addrs()})
	store, err := redislock.New(closed, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	grant, err := store.Acquire(t.Context(), driver.Request{Name: "after", Owner: driver.NewOwner(), TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := store.Release(t.Context(), grant); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Release after the client was closed: %v; want ErrClosed", err)
	}
	for _, err := range store.Renew(t.Context(), []driver.Grant{grant}) {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Renew after the client was closed: %v; want ErrClosed", err)
		}
	}
}
