package etcd

import (
	"errors"
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
	cluster := servers.RunEtcdCluster(t, nil)
	holder, other := newClient(t, cluster.URL(), longTTL), newClient(t, cluster.URL(), longTTL)
	lease := lockAnyhow(t, holder, "x")
	leader, err := cluster.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Pause(); err != nil {
		t.Fatal(err)
	}
	<-time.After(longTTL + time.Second)
	wantHeld(t, other, "x", "its holder is alive, and another member leads")
	if err := errors.Join(leader.Resume(), lease.Context().Err()); err != nil {
		t.Fatal(err)
	}
	next, err := other.Lock(t.Context(), "x", dlock.WithWait(3*time.Second))
	for errors.Is(err, dlock.ErrUnreachable) {
		next, err = other.Lock(t.Context(), "x", dlock.WithWait(3*time.Second))
	}
	if errors.Is(err, dlock.ErrHeld) { // the leader revoked nothing
		unlock(t, lease)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	t.Log("the leader has revoked a lease that is alive")
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(longTTL):
		t.Errorf("%v after the next grant the lease is not lost", longTTL)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
		t.Errorf("Unlock: %v; want ErrLost", err)
	}
	unlock(t, next)
}
