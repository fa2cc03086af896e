package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// shard is a server in cluster mode that has all slots, with a client for one server.
func shard(t testing.TB, args ...string) topology {
	server := servers.RunShard(t, args...)
	return topology{"redis://" + server.Addr(), clients(t, server.Addr())}
}

// TestSingleServerClientInClusterMode: a client for one server, with a server in cluster mode that
// has all slots, renews locks of many slots and acquires several names one after the other. That is
// also so if the server does not say its mode, and if the user may not try keys of two slots.
func TestSingleServerClientInClusterMode(t *testing.T) {
	odd := []string{"odd}name", "{odd", "{}odd"} // unescaped, their counters would be in another slot
	silent := []string{"--rename-command", "HELLO", ""}
	limited := strings.Fields("acl setuser limited on >pw ~redisson-* ~plain-* ~*:{redisson-* ~*:{plain-* ~{tag}* ~*:{tag}* &* +@all")
	for how, test := range map[string]struct {
		args []string
		odd  []string
		acl  []string
		user string
	}{
		"the server says its mode":         {nil, odd, nil, ""},
		"the server does not say its mode": {silent, odd, nil, ""},
		"neither server nor user can tell": {silent, nil, limited, "limited:pw@"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.RunShard(t, append(test.args, inMemory...)...)
			if test.acl != nil {
				words := make([]any, len(test.acl))
				for i, word := range test.acl {
					words[i] = word
				}
				must(t, clients(t, server.Addr())[0].Do(t.Context(), words...).Err())
			}
			for _, protocol := range protocols {
				locksOfManySlots(t, protocol, test.odd, func() driver.Store {
					store, _ := openURL(t, "redis://"+test.user+server.Addr()+"?protocol="+protocol)
					return store
				})
			}
		})
	}
}

// around is a type that hides its client.
type around struct{ redis.UniversalClient }

// TestWrappedClusterClientWorks: a type that embeds redis.UniversalClient and holds a client of
// Cluster works as on a cluster.
func TestWrappedClusterClientWorks(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	wrapped := around{redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Nodes.Addrs()})}
	t.Cleanup(func() { wrapped.Close() })
	open := func(protocol redislock.Protocol, replicas int) *redislock.Store {
		store := storeOver(t, wrapped, &redislock.Options{Protocol: protocol, Replicas: replicas})
		return store
	}
	for _, protocol := range []redislock.Protocol{redislock.Redisson, redislock.Plain} {
		locksOfManySlots(t, protocol.String(), []string{"odd}name"}, func() driver.Store { return open(protocol, 0) })
	}

	// It returns an error for what it cannot do.
	store := open(redislock.Redisson, 0)
	for _, err := range store.List(t.Context(), "") {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("List: %v; want ErrUnsupported: it would see one server of three", err)
		}
	}
	findings, err := store.Diagnose(t.Context())
	must(t, err)
	expect(t, findings, "cluster", driver.LevelWarning, "redis.around")
	_, err = open(redislock.Redisson, 1).Acquire(t.Context(), inMode(driver.Mode{}, "a"))
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Acquire with Replicas: %v; want ErrUnsupported: WAIT may reach another server than the lock", err)
	}
}

// TestWrappedRingIsRejected: New rejects a Ring inside another type.
func TestWrappedRingIsRejected(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "localhost:1"}})
	defer ring.Close()
	for _, client := range []redis.UniversalClient{around{ring}, &around{around{ring}}} {
		if _, err := redislock.New(client, nil); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("New(%T): %v; want ErrUnsupported", client, err)
		}
	}
}

// locksOfManySlots renews and acquires names of many slots, and the given names.
func locksOfManySlots(t *testing.T, protocol string, names []string, open func() driver.Store) {
	t.Helper()
	for i := range 300 {
		names = append(names, fmt.Sprintf("%s-%d", protocol, i))
	}
	renewing, other := open(), open()
	var grants []driver.Grant
	for _, name := range names {
		grant, err := renewing.Acquire(t.Context(), inMode(driver.Mode{}, name))
		if err != nil {
			t.Fatalf("%s: Acquire(%q): %v", protocol, name, err)
		}
		grants = append(grants, grant)
	}
	// A new store does not know the server's mode yet.
	lost := 0
	for _, err := range open().Renew(t.Context(), grants) {
		if err != nil {
			lost++
			t.Log(err)
		}
	}
	if lost > 0 {
		t.Errorf("%s: %d of %d locks are not renewed", protocol, lost, len(grants))
	}
	for _, grant := range grants {
		if err := other.Release(t.Context(), grant); err != nil {
			t.Errorf("%s: Release(%q): %v", protocol, grant.Name, err)
		}
	}
	client := dlock.New(open(), nil)
	defer client.Close()
	all, err := client.LockAll(t.Context(), names[:20])
	if err != nil {
		t.Fatalf("%s: LockAll: %v", protocol, err)
	}
	if err := all.Unlock(t.Context()); err != nil {
		t.Errorf("%s: Unlock: %v", protocol, err)
	}
	for _, together := range []bool{false, true} {
		some := names[len(names)-3:]
		if together {
			some = []string{"{tag}a", "{tag}b"}
		}
		atOnce(t, open(), some, together)
	}
}

// TestSingleServerClientSharesLocksOfACluster: other clients of the cluster see the same locks, and
// both sides notify each other through the cluster's channels.
func TestSingleServerClientSharesLocksOfACluster(t *testing.T) {
	t.Parallel()
	top := shard(t, inMemory...)
	raw := top.servers[0]
	_, plain := openURL(t, top.url)
	_, cluster := openURL(t, strings.Replace(top.url, "redis://", "redis+cluster://", 1))
	for _, name := range []string{"shared", "odd}"} {
		lease := mustLock(t, plain, name)
		if _, err := cluster.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("TryLock(%q) by the cluster's client: %v; want ErrHeld", name, err)
		}
		if info, found, err := cluster.Find(t.Context(), name); err != nil || !found || info.Token != lease.Token() {
			t.Errorf("Find(%q) by the cluster's client: %+v, %v, %v", name, info, found, err)
		}
		listed := 0
		for info, err := range plain.Locks(t.Context(), name) {
			if err != nil || info.Name != name {
				t.Errorf("Locks(%q): %+v, %v", name, info, err)
			}
			listed++
		}
		if listed != 1 {
			t.Errorf("Locks(%q) finds %d locks; want one", name, listed)
		}

		// Some versions of Redisson publish and subscribe to the shard alone.
		const limit = 10 * time.Second // the TTL is 30 s
		shardChannel := "redisson_lock__channel:{" + name + "}"
		if name == "odd}" {
			shardChannel = "redisson_lock__channel:{dlock:name:odd%7D}"
		}
		messages := raw.SSubscribe(t.Context(), shardChannel)
		if _, err := messages.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := waitFor(t.Context(), plain, name)
		unlock(t, lease)
		unlock(t, w.within(t, limit))
		select {
		case <-messages.Channel():
		case <-time.After(limit):
			t.Errorf("%q: no message in the shard's channel", name)
		}
		messages.Close()
		store, _ := openURL(t, top.url)
		woken, stop := watch(t, store, driver.Request{Name: name, Owner: driver.NewOwner()})
		must(t, raw.SPublish(t.Context(), shardChannel, "0").Err())
		await.Event(t, woken, "a wake-up")
		stop()
	}
	expect(t, diagnose(t, top.url), "cluster", driver.LevelWarning, "redis+cluster://")
}

// TestSingleServerClientOfManyMastersFails: a client for one server of several gets an error that
// says what is wrong, and does not wait.
func TestSingleServerClientOfManyMastersFails(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	lookup := clusterClient(t, c)
	for _, query := range []string{"?protocol=redisson", "?protocol=plain", "?" + acknowledgedLate} {
		url := "redis://" + c.Nodes[0].Addr() + query
		store, client := openURL(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the TTL is 30 s
		lease, err := client.Lock(ctx, nameOn(t, lookup, c.Nodes[0], query))
		if err != nil {
			t.Fatalf("%s: a lock of the server's own slots: %v", query, err)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
		elsewhere := nameOn(t, lookup, c.Nodes[1], query)
		_, err = client.Lock(ctx, elsewhere)
		wantsClusterClient(t, query+": Lock", err)
		grant := driver.Grant{Name: elsewhere, Owner: driver.NewOwner(), Token: 1, TTL: time.Minute}
		for _, err := range store.Renew(ctx, []driver.Grant{grant}) {
			wantsClusterClient(t, query+": Renew", err)
		}
		wantsClusterClient(t, query+": Release", store.Release(ctx, grant))
		cancel()
		expect(t, diagnose(t, url), "cluster", driver.LevelProblem, "3 masters")
	}
}

func wantsClusterClient(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) || !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("%s: %v; want a lasting error that says which client is needed", what, err)
	}
}
