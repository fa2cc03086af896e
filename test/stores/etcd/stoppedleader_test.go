package etcd

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

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
	leader, err := cluster.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Pause(); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * ttl)
	leases = slices.DeleteFunc(leases, func(lease *dlock.Lease) bool { return lease.Context().Err() != nil })
	if len(leases) == 0 {
		t.Fatal("no lease is alive, although another member leads")
	}
	wantHeld(t, other, leases[0].Name(), "its holder is alive, and another member leads")
	if err := leader.Resume(); err != nil {
		t.Fatal(err)
	}
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
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		select {
		case <-lease.Context().Done():
		case <-time.After(ttl):
			t.Errorf("%v after the next grant the lease is not lost", ttl)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Unlock: %v; want ErrLost", err)
		}
		unlock(t, next)
	}
	t.Logf("the leader has revoked %d of %d leases that were alive", revoked, len(leases))
}
