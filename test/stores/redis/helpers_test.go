package redis

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// protocols are the names of all protocols.
var protocols = []string{"redisson", "plain"}

// openURL opens a store and a client for a test.
func openURL(t testing.TB, url string) (driver.Store, *dlock.Client) {
	t.Helper()
	store, err := open(t.Context(), url)
	must(t, err)
	client := dlock.New(store, nil)
	t.Cleanup(func() {
		client.Close() // its locks expire; the server may be gone
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, client
}

// run starts a server that writes nothing to disk, and returns a client of it.
func run(t testing.TB) (*servers.Server, *redis.Client) {
	server := servers.Run(t, servers.Redis, inMemory...)
	return server, clients(t, server.Addr())[0]
}

// follow makes a server a replica of another one.
func follow(t testing.TB, replica *redis.Client, master *servers.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	must(t, replica.ReplicaOf(t.Context(), host, port).Err())
}

func clusterClient(t testing.TB, c *servers.Cluster) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Nodes.Addrs()})
	t.Cleanup(func() { client.Close() })
	return client
}

// clients returns a client for each address.
func clients(t testing.TB, addrs ...string) (list []*redis.Client) {
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		list = append(list, client)
	}
	return list
}

// open opens a store for a URL of any topology.
func open(ctx context.Context, url string) (driver.Store, error) {
	if strings.HasPrefix(url, "redlock://") {
		return redlock.Open(ctx, url, &redlock.Options{MemberTimeout: memberTimeout})
	}
	return redislock.Open(ctx, url, nil)
}

// memberTimeout is long because the machine that runs the tests stalls.
const memberTimeout = time.Second * slowdown

// eachProtocol runs try for both protocols in parallel: like the faults, they mostly wait.
func eachProtocol(t *testing.T, try func(t *testing.T, protocol string)) {
	t.Helper()
	var both sync.WaitGroup
	for _, protocol := range protocols {
		both.Go(func() { t.Run(protocol, func(t *testing.T) { try(t, protocol) }) })
	}
	both.Wait()
}

// protocolOf returns the protocol of that name.
func protocolOf(name string) redislock.Protocol {
	if name == "plain" {
		return redislock.Plain
	}
	return redislock.Redisson
}

// newStore returns a store over a client with these options.
func newStore(t *testing.T, protocol string, opts *redis.Options, hooks ...redis.Hook) *redislock.Store {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	return storeOver(t, client, &redislock.Options{Protocol: protocolOf(protocol)})
}

// storeOver returns a store over the client of a test.
func storeOver(t *testing.T, client redis.UniversalClient, opts *redislock.Options) *redislock.Store {
	t.Helper()
	store, err := redislock.New(client, opts)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// must demands that a step of the test works.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustLock(t testing.TB, client *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := client.Lock(t.Context(), name, opts...)
	must(t, err)
	return lease
}

// unlock demands that the lease was held until now.
func unlock(t testing.TB, lease interface{ Unlock(context.Context) error }) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// acquireAndRelease acquires and releases a name, and returns the token.
func acquireAndRelease(t *testing.T, store driver.Store, name string) uint64 {
	t.Helper()
	grant := acquireOne(t, store, name)
	mustRelease(t, store, grant)
	return grant.Token
}

// taker returns acquireAndRelease for one name.
func taker(t *testing.T, store driver.Store, name string) func() uint64 {
	return func() uint64 {
		t.Helper()
		return acquireAndRelease(t, store, name)
	}
}

// waiter waits for a lock in the background.
type waiter struct {
	lease *dlock.Lease
	err   error
	done  chan struct{}
}

func waitFor(ctx context.Context, client *dlock.Client, name string, opts ...dlock.Option) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = client.Lock(ctx, name, opts...)
	}()
	return w
}

// within demands that the wait succeeds in time, and returns the lease.
func (w *waiter) within(t *testing.T, limit time.Duration) *dlock.Lease {
	t.Helper()
	select {
	case <-w.done:
		if w.err != nil {
			t.Fatal(w.err)
		}
		return w.lease
	case <-time.After(limit):
		t.Fatalf("still waiting after %v", limit)
		return nil
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	limit := time.After(20 * time.Second)
	for !condition() {
		select {
		case <-poll.C:
		case <-limit:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// inMemory are the arguments of servers that write nothing to disk. None of these faults needs data
// that survives, and a disk that many servers sync to can block for longer than a TTL.
var inMemory = []string{"--appendonly", "no"}

// openRedlock opens a Redlock of servers.
func openRedlock(t testing.TB, addrs ...string) *redlock.Store {
	t.Helper()
	store, err := redlock.Open(t.Context(), "redlock://"+strings.Join(addrs, ","), &redlock.Options{MemberTimeout: memberTimeout})
	must(t, err)
	t.Cleanup(func() { store.Close() }) // its servers may be gone
	return store
}

// acquireOne acquires a name for a minute.
func acquireOne(t *testing.T, store driver.Store, name string) driver.Grant {
	t.Helper()
	return mustAcquire(t, store, inMode(driver.Mode{}, name))
}
