package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// limit bounds what must happen, on a machine that is busy.
const limit = 30 * time.Second

// newStore opens a store for a test.
func newStore(t testing.TB, url string) driver.Store {
	t.Helper()
	store, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, store)
	return store
}

func closeAtEnd(t testing.TB, store driver.Store) {
	t.Helper()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newClient returns a client over a store of its own. With a long TTL its RequestTimeout is long, too.
func newClient(t testing.TB, url string, ttl time.Duration) *dlock.Client {
	t.Helper()
	client := dlock.New(newStore(t, url), &dlock.Options{TTL: ttl, RequestTimeout: max(2*time.Second, ttl/2)})
	t.Cleanup(func() { _ = client.Close() }) // it may not reach the server any more
	return client
}

// lockAnyhow locks, and tries again while the store cannot be reached.
func lockAnyhow(t testing.TB, client *dlock.Client, name string) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		lease, err := client.Lock(ctx, name)
		if err == nil {
			return lease
		}
		if !errors.Is(err, dlock.ErrUnreachable) || ctx.Err() != nil {
			t.Fatalf("Lock(%q), tried again and again: %v", name, err)
		}
	}
}

func unlock(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// wantHeld checks that an attempt is refused, because of why.
func wantHeld(t testing.TB, client *dlock.Client, name, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var lease *dlock.Lease
		if lease, err = client.TryLock(ctx, name); err == nil {
			t.Errorf("%q was granted with token %d: %s", name, lease.Token(), why)
			return
		}
		if errors.Is(err, dlock.ErrHeld) {
			return
		}
	}
	t.Errorf("TryLock(%q): %v; want ErrHeld: %s", name, err, why)
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// longTTL is longer than an election on a busy machine.
const longTTL = 30 * time.Second

// TestLocksSurviveTheLossOfTheLeader: a cluster whose leader is killed or paused keeps locks, tokens
// and places in the queue, and grants no lock twice.
func TestLocksSurviveTheLossOfTheLeader(t *testing.T) {
	t.Parallel()
	for how, lose := range map[string]func(*servers.Server) error{
		"killed": (*servers.Server).Kill,
		"paused": (*servers.Server).Pause,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cluster := servers.RunEtcdCluster(t, nil)
			holder, waiter := newClient(t, cluster.URL(), longTTL), newClient(t, cluster.URL(), longTTL)
			lease := lockAnyhow(t, holder, "kept")
			next := make(chan *dlock.Lease, 1)
			go func() { next <- lockAnyhow(t, waiter, "kept") }()
			observer := newStore(t, cluster.URL())
			eventually(t, "the waiter has a place", func() bool { return waiters(observer, "kept") == 1 })

			leader, err := cluster.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lose(leader); err != nil {
				t.Fatal(err)
			}
			other := newClient(t, cluster.URL(), longTTL)
			free := lockAnyhow(t, other, "free") // there is a new leader
			wantHeld(t, other, "kept", "its holder is alive")
			if err := lease.Context().Err(); err != nil {
				t.Errorf("the lease was lost with the leader: %v", err)
			}
			unlock(t, lease)
			select {
			case got := <-next:
				if got.Token() <= lease.Token() {
					t.Errorf("token %d after %d", got.Token(), lease.Token())
				}
				unlock(t, got)
			case <-time.After(limit):
				t.Errorf("the waiter was not woken within %v", limit)
			}
			unlock(t, free)
			if how == "paused" {
				if err := leader.Resume(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// waiters returns how many waiters a lock has, -1 if that is unknown.
func waiters(store driver.Store, name string) int {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	info, ok, err := store.(driver.Finder).Find(ctx, name)
	if !ok || err != nil {
		return -1
	}
	return info.Waiters
}

// TestNothingIsGrantedWithoutAQuorum: without a quorum nothing is granted, leases end in time, and
// everything works again afterwards.
func TestNothingIsGrantedWithoutAQuorum(t *testing.T) {
	t.Parallel()
	cluster := servers.RunEtcdCluster(t, nil)
	client, other := newClient(t, cluster.URL(), faultTTL), newClient(t, cluster.URL(), faultTTL)
	lease := lockAnyhow(t, client, "held")
	for _, member := range cluster.Members[:2] {
		if err := member.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	paused := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := other.TryLock(ctx, "other"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("TryLock without a quorum: %v; want ErrUnreachable", err)
	}
	eventually(t, "the TTL has passed", func() bool { return time.Since(paused) > faultTTL })
	if lease.Context().Err() == nil { // Err reads the clock
		t.Errorf("the lease has not ended %v after its last renewal; the TTL is %v", time.Since(paused), faultTTL)
	}
	for _, member := range cluster.Members[:2] {
		if err := member.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	again := lockAnyhow(t, other, "held")
	if again.Token() <= lease.Token() {
		t.Errorf("token %d after %d", again.Token(), lease.Token())
	}
	unlock(t, again)
	unlock(t, lockAnyhow(t, other, "other"))
}

// TestCutOffMemberServesNobody: a leader that the other members do not hear any more serves no
// client. A lease that was acquired through it ends, and a client of another member gets the lock.
func TestCutOffMemberServesNobody(t *testing.T) {
	t.Parallel()
	var proxies []*proxy.Proxy // by member, for what the others ask it for
	cluster := servers.RunEtcdCluster(t, func(addr string) string {
		p := proxy.Run(t, addr)
		proxies = append(proxies, p)
		return p.Addr()
	})
	leader, err := cluster.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cut, outside := newClient(t, leader.URL(), faultTTL), newClient(t, cluster.URL(), faultTTL)
	lease := lockAnyhow(t, cut, "cut off")
	for i, member := range cluster.Members {
		if member == leader {
			proxies[i].Hold()
			defer proxies[i].Deliver()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	select {
	case <-lease.Context().Done():
	case <-ctx.Done():
		t.Fatal("the lease of the client that is cut off did not end")
	}
	next := lockAnyhow(t, outside, "cut off")
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if _, err := cut.TryLock(ctx, "anything"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("TryLock on the member that is cut off: %v; want ErrUnreachable", err)
	}
	unlock(t, next)
}

// TestLocksSurviveARestart: locks, tokens and waiters survive a crash of the server.
func TestLocksSurviveARestart(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, servers.EtcdSynced)
	holder, waiter := newClient(t, server.URL(), longTTL), newClient(t, server.URL(), longTTL)
	lease := lockAnyhow(t, holder, "kept")
	next := make(chan *dlock.Lease, 1)
	go func() { next <- lockAnyhow(t, waiter, "kept") }()
	observer := newStore(t, server.URL())
	eventually(t, "the waiter has a place", func() bool { return waiters(observer, "kept") == 1 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, newClient(t, server.URL(), longTTL), "kept", "it was held when the server crashed")
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease was lost: %v", err)
	}
	unlock(t, lease)
	select {
	case got := <-next:
		if got.Token() <= lease.Token() {
			t.Errorf("token %d after %d", got.Token(), lease.Token())
		}
		unlock(t, got)
	case <-time.After(limit):
		t.Errorf("the waiter was not woken within %v", limit)
	}
}

// TestRevokedLeaseIsReplaced: when the lease ends on the server, all its locks are lost
// at once, its waiters take a new place, and the store goes on with a new lease.
func TestRevokedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	holder, waiter := newClient(t, server.URL(), time.Minute), newClient(t, server.URL(), time.Minute)
	first, second := lockAnyhow(t, holder, "first"), lockAnyhow(t, holder, "second")
	foreign := lockAnyhow(t, newClient(t, server.URL(), time.Minute), "waited for")
	next := make(chan *dlock.Lease, 1)
	go func() { next <- lockAnyhow(t, waiter, "waited for") }()
	observer := newStore(t, server.URL())
	eventually(t, "the waiter has a place", func() bool { return waiters(observer, "waited for") == 1 })

	revokeLeaseOf(t, raw, "first/")
	free, err := newClient(t, server.URL(), time.Minute).TryLock(t.Context(), "first")
	if err != nil || free.Token() <= first.Token() {
		t.Fatalf("TryLock of a lock whose lease was revoked: %v, %v; want a token larger than %d", free, err, first.Token())
	}
	unlock(t, free)
	// No watch reports the revocation to the holder's store, and its next renewal is 20 seconds away.
	// It notices when it makes other attempts on the same etcd lease.
	wantHeld(t, holder, "waited for", "another client has it")
	unlock(t, lockAnyhow(t, holder, "third"))
	for _, lease := range []*dlock.Lease{first, second} {
		select {
		case <-lease.Context().Done():
			if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
				t.Errorf("%q ended with %v", lease.Name(), cause)
			}
		case <-time.After(10 * time.Second): // a renewal would come after 20
			t.Errorf("the lease of %q did not end", lease.Name())
		}
	}
	revokeLastOf(t, raw, "waited for/")
	eventually(t, "the waiter has a new place", func() bool { return waiters(observer, "waited for") == 1 })
	unlock(t, foreign)
	select {
	case lease := <-next:
		unlock(t, lease)
	case <-time.After(limit):
		t.Error("the waiter whose lease was revoked never got the lock")
	}
}

// TestDeletedPlaceIsNotFirst: a waiter whose key is deleted during its attempt is not granted the
// lock because all keys ahead of it are deleted.
func TestDeletedPlaceIsNotFirst(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store, other := newStore(t, "etcd://"+p.Addr()), newStore(t, server.URL())
	before, err := other.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	req := request("x")
	req.Queue = true
	woken := make(chan struct{}, 1)
	stop, err := store.(driver.Watcher).Watch(t.Context(), req, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	start := time.Now()
	for range 2 {
		if _, err := store.Acquire(t.Context(), req); err == nil {
			t.Fatal("granted twice")
		}
	}
	place, err := raw.Get(t.Context(), "x/", clientv3.WithLastCreate()...)
	if err != nil || len(place.Kvs) != 1 || uint64(place.Kvs[0].CreateRevision) == tokenstep.Number(before.Token) {
		t.Fatalf("%v, %v", place, err)
	}
	eventually(t, "the lease has to be renewed before it is relied on", func() bool { return time.Since(start) > 1100*time.Millisecond })
	p.Hold(proxy.Requests)
	type result struct {
		grant driver.Grant
		err   error
	}
	got := make(chan result, 1)
	go func() {
		grant, err := store.Acquire(t.Context(), req)
		got <- result{grant, err}
	}()
	if !p.Held(proxy.Requests, limit) {
		t.Fatal("the waiter does not ask")
	}
	if _, err := raw.Delete(t.Context(), string(place.Kvs[0].Key)); err != nil {
		t.Fatal(err)
	}
	if err := other.Release(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	next, err := other.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	<-woken // the watch has reported the deletions
	p.Deliver()
	if r := <-got; r.err == nil {
		t.Errorf("token %d was granted while another owner has the lock with token %d", r.grant.Token, next.Token)
	}
	eventually(t, "the waiter has another place, behind the next holder", func() bool {
		if _, err := store.Acquire(t.Context(), req); err == nil {
			t.Fatal("granted twice")
		}
		place, err = raw.Get(t.Context(), "x/", clientv3.WithLastCreate()...)
		return err == nil && len(place.Kvs) == 1 && uint64(place.Kvs[0].CreateRevision) > tokenstep.Number(next.Token)
	})
}
