package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// keepsLocks checks that locks, tokens and places in the queue outlive what happens to the servers, and
// that no lock is granted twice.
func keepsLocks(t *testing.T, url string, lose func()) {
	t.Helper()
	lease := lockAnyhow(t, newClient(t, url, longTTL), "kept")
	next := lockLater(t, newClient(t, url, longTTL), "kept")
	observer := newStore(t, url)
	await.Until(t, "the waiter has a place", func() bool { return waiters(observer, "kept") == 1 })
	lose()
	other := newClient(t, url, longTTL)
	free := lockAnyhow(t, other, "free") // there is a leader
	wantHeld(t, other, "kept", "its holder is alive")
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease was lost with the server: %v", err)
	}
	want.Unlock(t, lease)
	want.Unlock(t, want.Served(t, next, lease.Token()), free)
}

// TestLocksSurviveTheLossOfTheLeader: a cluster whose leader is killed or paused keeps its locks.
func TestLocksSurviveTheLossOfTheLeader(t *testing.T) {
	t.Parallel()
	for how, fault := range serverGone {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cluster := servers.RunEtcdCluster(t, nil)
			keepsLocks(t, cluster.URL(), func() { fault.begin(t, want.Value(cluster.Leader(t.Context()))(t)) })
		})
	}
}

// TestNothingIsGrantedWithoutAQuorum: without a quorum nothing is granted, leases end in time, and
// everything works again afterwards.
func TestNothingIsGrantedWithoutAQuorum(t *testing.T) {
	t.Parallel()
	cluster := servers.RunEtcdCluster(t, nil)
	client, other := newClient(t, cluster.URL(), faultTTL), newClient(t, cluster.URL(), faultTTL)
	lease := lockAnyhow(t, client, "held")
	for _, member := range cluster.Members[:2] {
		want.OK(t, member.Pause())
	}
	paused := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	want.Error(t, "TryLock without a quorum", want.Err(other.TryLock(ctx, "other")), dlock.ErrUnreachable)
	await.Until(t, "the TTL has passed", func() bool { return time.Since(paused) > faultTTL })
	if lease.Context().Err() == nil { // Err reads the clock
		t.Errorf("the lease has not ended %v after its last renewal; the TTL is %v", time.Since(paused), faultTTL)
	}
	for _, member := range cluster.Members[:2] {
		want.OK(t, member.Resume())
	}
	again := lockAnyhow(t, other, "held")
	want.Larger(t, again.Token(), lease.Token())
	want.Unlock(t, again)
	want.Unlock(t, lockAnyhow(t, other, "other"))
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
	leader := want.Value(cluster.Leader(t.Context()))(t)
	cut, outside := newClient(t, leader.URL(), faultTTL), newClient(t, cluster.URL(), faultTTL)
	lease := lockAnyhow(t, cut, "cut off")
	for i, member := range cluster.Members {
		if member == leader {
			proxies[i].Hold()
			defer proxies[i].Deliver()
		}
	}
	await.Event(t, lease.Context().Done(), "the lease of the client that is cut off ends")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	next := lockAnyhow(t, outside, "cut off")
	want.Larger(t, next.Token(), lease.Token())
	want.Error(t, "TryLock on the member that is cut off", want.Err(cut.TryLock(ctx, "anything")), dlock.ErrUnreachable)
	want.Unlock(t, next)
}

// TestLocksSurviveARestart: locks, tokens and waiters survive a crash of the server.
func TestLocksSurviveARestart(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, servers.EtcdSynced)
	keepsLocks(t, server.URL(), func() {
		want.OK(t, server.Kill())
		want.OK(t, server.Restart())
	})
}

// TestRevokedLeaseIsReplaced: when the lease ends on the server, all its locks are lost
// at once, its waiters take a new place, and the store goes on with a new lease.
func TestRevokedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	holder, waiter := newClient(t, server.URL(), time.Minute), newClient(t, server.URL(), time.Minute)
	one, second := lockAnyhow(t, holder, "first"), lockAnyhow(t, holder, "second")
	foreign := lockAnyhow(t, newClient(t, server.URL(), time.Minute), "waited for")
	next := lockLater(t, waiter, "waited for")
	observer := newStore(t, server.URL())
	await.Until(t, "the waiter has a place", func() bool { return waiters(observer, "waited for") == 1 })

	revokeLeaseOf(t, raw, first(t, raw, "first"))
	free, err := newClient(t, server.URL(), time.Minute).TryLock(t.Context(), "first")
	if err != nil || free.Token() <= one.Token() {
		t.Fatalf("TryLock of a lock whose lease was revoked: %v, %v; want a token larger than %d", free, err, one.Token())
	}
	want.Unlock(t, free)
	// No watch reports the revocation to the holder's store, and its next renewal is 20 seconds away.
	// It notices when it makes other attempts on the same etcd lease.
	wantHeld(t, holder, "waited for", "another client has it")
	want.Unlock(t, lockAnyhow(t, holder, "third"))
	for _, lease := range []*dlock.Lease{one, second} {
		select {
		case <-lease.Context().Done():
			if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
				t.Errorf("%q ended with %v", lease.Name(), cause)
			}
		case <-time.After(10 * time.Second): // a renewal would come after 20
			t.Errorf("the lease of %q did not end", lease.Name())
		}
	}
	revokeLeaseOf(t, raw, last(t, raw, "waited for"))
	await.Until(t, "the waiter has a new place", func() bool { return waiters(observer, "waited for") == 1 })
	want.Unlock(t, foreign)
	want.Unlock(t, want.Served(t, next, foreign.Token()))
}

// TestDeletedPlaceIsNotFirst: a waiter whose key is deleted during its attempt is not granted the
// lock because all keys ahead of it are deleted.
func TestDeletedPlaceIsNotFirst(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	before := want.Acquire(t, r.other, request("x"))
	req := request("x")
	req.Queue = true
	woken := want.Watch(t, r.store, req)
	start := time.Now()
	want.Held(t, r.store, req, "another has it")
	want.Held(t, r.store, req, "another has it")
	place := last(t, r.raw, "x")
	if uint64(place.CreateRevision) == tokenstep.Number(before.Token) {
		t.Fatal("the waiter has no place")
	}
	await.Until(t, "the lease has to be renewed before it is relied on", func() bool { return time.Since(start) > 1100*time.Millisecond })
	r.proxy.Hold(proxy.Requests)
	got := want.Later(func() error { return want.Err(r.store.Acquire(t.Context(), req)) })
	if !r.proxy.Held(proxy.Requests, limit) {
		t.Fatal("the waiter does not ask")
	}
	remove(t, r.raw, string(place.Key))
	want.Release(t, r.other, before)
	next := want.Acquire(t, r.other, request("x"))
	happens(t, woken) // the watch has reported the deletions
	r.proxy.Deliver()
	if err := <-got; err == nil {
		t.Errorf("granted while another owner has the lock with token %d", next.Token)
	}
	await.Until(t, "the waiter has another place, behind the next holder", func() bool {
		want.Held(t, r.store, req, "another has it")
		return uint64(last(t, r.raw, "x").CreateRevision) > tokenstep.Number(next.Token)
	})
}

// TestStoppedLeaderGoesOn: a leader that was stopped for longer than a TTL goes on, and may revoke
// etcd leases that the next leader has renewed: it checks that it still leads, but not after a
// stop. A lock that ends so has a next holder with a larger token, and its lease ends at its next
// renewal.
func TestStoppedLeaderGoesOn(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second // elections may take two rounds
	cluster := servers.RunEtcdCluster(t, nil)
	other := newClient(t, cluster.URL(), ttl)
	var leases []*dlock.Lease
	for i := range 20 { // each has an etcd lease of its own
		leases = append(leases, lockAnyhow(t, newClient(t, cluster.URL(), ttl), fmt.Sprint(i)))
	}
	leader := want.Value(cluster.Leader(t.Context()))(t)
	want.OK(t, leader.Pause())
	<-time.After(2 * ttl)
	leases = slices.DeleteFunc(leases, func(lease *dlock.Lease) bool { return lease.Context().Err() != nil })
	if len(leases) == 0 {
		t.Fatal("no lease is alive, although another member leads")
	}
	wantHeld(t, other, leases[0].Name(), "its holder is alive, and another member leads")
	want.OK(t, leader.Resume())
	<-time.After(time.Second)
	revoked := 0
	for _, lease := range leases {
		next, err := other.TryLock(t.Context(), lease.Name())
		for errors.Is(err, dlock.ErrUnreachable) {
			next, err = other.TryLock(t.Context(), lease.Name())
		}
		if errors.Is(err, dlock.ErrHeld) {
			// A slow leader may revoke it only now.
			if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrNotHeld) && !errors.Is(err, dlock.ErrLost) {
				t.Errorf("Unlock(%q): %v", lease.Name(), err)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		revoked++
		want.Larger(t, next.Token(), lease.Token())
		select {
		case <-lease.Context().Done():
		case <-time.After(ttl):
			t.Errorf("%v after the next grant the lease is not lost", ttl)
		}
		want.Error(t, "Unlock", lease.Unlock(t.Context()), dlock.ErrLost)
		want.Unlock(t, next)
	}
	t.Logf("the leader has revoked %d of %d leases that were alive", revoked, len(leases))
}
