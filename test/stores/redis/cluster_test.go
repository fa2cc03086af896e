package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestHangingMasterDelaysNoOther: if one master of a cluster hangs, locks of the other masters are
// renewed, released and acquired as before.
func TestHangingMasterDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, append([]string{"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no"}, inMemory...)...)
	lookup := clusterClient(t, c)
	hangs, healthy := c.Nodes[0], c.Nodes[1:3]
	for _, query := range []string{"?read_timeout=30s", "?read_timeout=30s&" + acknowledgedLate} {
		store, _ := openURL(t, c.URL()+query)
		request := func(on *servers.Server) driver.Request {
			return inMode(driver.Mode{}, nameOn(t, lookup, on, query))
		}
		var grants []driver.Grant // those of the healthy masters come first
		for _, node := range append(slices.Clone(healthy), hangs) {
			grant, err := store.Acquire(t.Context(), request(node))
			must(t, err)
			grants = append(grants, grant)
		}
		must(t, hangs.Pause())
		eventually(t, "the locks of healthy masters are renewed", func() bool { // the machine may stall for a second
			limited, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			errs := store.Renew(limited, grants)
			if err := errs[len(healthy)]; err == nil || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%s: the lock of a master that hangs: %v; want that it is unknown", query, err)
			}
			return errors.Join(errs[:len(healthy)]...) == nil && limited.Err() == nil // a release may wait for this call
		})

		// More callers than there may be pipelines acquire locks of the hanging master.
		want, stop := context.WithCancel(t.Context())
		var stuck sync.WaitGroup
		for range 40 {
			req := request(hangs)
			stuck.Go(func() { _, _ = store.Acquire(want, req) })
			<-time.After(3 * time.Millisecond) // so that each call is a pipeline of its own
		}
		for i, node := range healthy {
			limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := store.Release(limited, grants[i]); err != nil {
				t.Errorf("%s: Release on a healthy master: %v", query, err)
			}
			grant, err := store.Acquire(limited, request(node))
			if err != nil {
				t.Errorf("%s: Acquire on a healthy master: %v", query, err)
			} else if err := store.Release(limited, grant); err != nil {
				t.Errorf("%s: Release on a healthy master: %v", query, err)
			}
			cancel()
		}
		stop()
		must(t, hangs.Resume())
		stuck.Wait()
		settled, cancel := context.WithTimeout(t.Context(), time.Minute)
		must(t, c.WaitSettled(settled))
		cancel()
	}
}

// TestHolderKeepsLockWhileSlotMoves: a holder can renew and release a lock while its slot moves to
// another server, however long that takes.
func TestHolderKeepsLockWhileSlotMoves(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	stores := make(map[string]driver.Store)
	for _, query := range []string{"", "?" + acknowledgedLate} {
		stores["store"+query], _ = openURL(t, c.URL()+query)
	}
	for _, replicas := range []int{0, 1} {
		store, err := openWrapping(c.URL(), &redislock.Options{Replicas: replicas})
		must(t, err)
		defer store.Close()
		stores[fmt.Sprintf("store over a client with a hook, %d replicas", replicas)] = store
	}
	for what, store := range stores {
		const name = "moves"
		grant := acquireOne(t, store, name)
		move, finish := moveSlot(t, c, name)
		move(name, "redisson_lock_token:{"+name+"}")
		for range 2 { // the server may not know the script the first time
			if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Errorf("%s: Renew: %v", what, errs)
			}
		}
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
		finish()
		last := grant.Token
		rises(t, &last, acquireAndRelease(t, store, name), what+": on the new server")
	}
}

// TestSharesAreKeptWhileSlotMoves: while the lock and the key of a share are on different servers,
// no server takes the share for an expired one.
func TestSharesAreKeptWhileSlotMoves(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	for i, test := range []struct {
		query      string
		mode       driver.Mode // exclusive for a share that was downgraded
		shareFirst bool
	}{
		{"", shared, false},
		{"", permits, true},
		{"?" + acknowledgedLate, driver.Mode{}, false},
		{"?" + acknowledgedLate, shared, true},
	} {
		name := fmt.Sprintf("moves-%d", i)
		store, _ := openURL(t, c.URL()+test.query)
		grant := mustAcquire(t, store, inMode(test.mode, name))
		if test.mode == (driver.Mode{}) {
			must(t, store.(driver.Downgrader).Downgrade(t.Context(), grant))
		}
		first := []string{name, "redisson_lock_token:{" + name + "}"}
		second := []string{"{" + name + "}:" + grant.Owner.Hex() + ":rwlock_timeout:1"}
		if test.shareFirst {
			first, second = second, first
		}
		move, finish := moveSlot(t, c, name)
		move(first...)
		writer := inMode(driver.Mode{}, name)
		_, acquired := store.Acquire(t.Context(), writer)
		_, acquiredAll := store.(driver.BatchAcquirer).AcquireAll(t.Context(), []driver.Request{writer})
		for what, err := range map[string]error{
			"Acquire":    acquired,
			"AcquireAll": acquiredAll,
			"Renew":      errors.Join(store.Renew(t.Context(), []driver.Grant{grant})...),
		} {
			if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%+v: %s beside a share that is on two servers: %v; want ErrUnreachable", test, what, err)
			}
		}
		move(second...)
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Errorf("%+v: Renew of a share that has moved: %v", test, errs)
		}
		if err := store.Release(t.Context(), grant); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%+v: Release before the end of the move: %v; want ErrUnreachable", test, err)
		}
		finish()
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("%+v: Release on the new server: %v", test, err)
		}
		mustRelease(t, store, mustAcquire(t, store, writer))
	}
}

// moveSlot begins to move the slot of a key to another master. Of the functions that it returns,
// move moves keys, and finish ends the move.
func moveSlot(t *testing.T, c *servers.Cluster, key string) (move func(keys ...string), finish func()) {
	t.Helper()
	var from *servers.Server
	eventually(t, "the nodes agree on the owner of the slot", func() (agreed bool) {
		var err error
		from, err = c.Master(t.Context(), key)
		return err == nil
	})
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	both := clients(t, from.Addr(), to.Addr())
	source, target := both[0], both[1]
	do := func(client *redis.Client, args ...any) any {
		t.Helper()
		reply, err := client.Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return reply
	}
	slot, sourceID, targetID := do(source, "cluster", "keyslot", key), do(source, "cluster", "myid"), do(target, "cluster", "myid")
	do(target, "cluster", "setslot", slot, "importing", sourceID)
	do(source, "cluster", "setslot", slot, "migrating", targetID)
	host, port, err := net.SplitHostPort(to.Addr())
	must(t, err)
	move = func(keys ...string) {
		t.Helper()
		migrate := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			migrate = append(migrate, key)
		}
		do(source, migrate...)
	}
	return move, func() {
		t.Helper()
		do(target, "cluster", "setslot", slot, "node", targetID)
		do(source, "cluster", "setslot", slot, "node", targetID)
	}
}

// TestReplacedNodeClientDoesNotCloseTheStore: the cluster's client closes and replaces the client
// of one server. Only after the cluster's client was closed, calls return ErrClosed.
func TestReplacedNodeClientDoesNotCloseTheStore(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	for _, replicas := range []int{0, 1} {
		client := newForgetful(t, c)
		store := storeOver(t, client, &redislock.Options{Replicas: replicas})
		req := inMode(driver.Mode{}, "between")
		if _, err := store.Acquire(t.Context(), req); err != nil { // so that the client knows its cluster
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
	store := storeOver(t, closed, nil)
	grant, err := store.Acquire(t.Context(), driver.Request{Name: "after", Owner: driver.NewOwner(), TTL: time.Second})
	must(t, err)
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
