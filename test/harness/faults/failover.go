package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Unacknowledged are the faults of a store whose leader answers before its
// replicas have the write. Acknowledged are the faults of a store that waits for
// its replicas. They need Failover. Other tests on the same server notice them.
var (
	Unacknowledged = []Fault{{"the leader dies and takes a lock with it", leaderForgets}}
	Acknowledged   = []Fault{{"the leader dies without the acknowledgement of its replicas", unacknowledgedLeaderDies}}
)

// failoverTTL is longer than a failover, so that no lock expires meanwhile.
const failoverTTL = 5 * time.Minute

// leaderForgets checks that the token protects the resource when there are two
// holders, because the new leader does not know the lock of the first.
func leaderForgets(t *testing.T, r rig) {
	resource := new(fenced)
	first := r.client(t)
	unlock(t, r.lock(t, first, "story"))
	r.Failover.Isolate()
	lease := r.lock(t, first, "story", dlock.WithFixedTTL(failoverTTL))
	t.Logf("the first client has the lock with token %d; the leader knows it, its replicas do not", lease.Token())
	if !resource.write(lease.Token()) {
		t.Error("the write of the first holder was rejected")
	}
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("the leader has died, and a replica without the lock has taken over")
	contender := r.lockWithRetry(t, r.client(t), "story")
	t.Logf("the second client has the lock with token %d", contender.Token())
	if lease.Context().Err() != nil || contender.Context().Err() != nil {
		t.Errorf("one of the two holders has noticed already (%v, %v): the test shows nothing",
			lease.Context().Err(), contender.Context().Err())
	}
	if contender.Token() <= lease.Token() || !resource.write(contender.Token()) {
		t.Errorf("token %d after %d, which went down with the leader", contender.Token(), lease.Token())
	}
	if resource.write(lease.Token()) {
		t.Errorf("the write of the first holder with token %d was accepted after token %d", lease.Token(), contender.Token())
	} else {
		t.Log("both trust their leases; the resource, which checks tokens, rejects the first holder")
	}
	unlockLost(t, lease)
	r.mustBeHeld(t, "story", "the second client holds it")
	unlock(t, contender)
}

// unacknowledgedLeaderDies checks that an acknowledged lock survives the leader, and that an
// unacknowledged acquisition fails, and leaves no lock when it was released.
func unacknowledgedLeaderDies(t *testing.T, r rig) {
	c, contender := r.client(t), r.client(t)
	kept := r.lockWithRetry(t, c, "acknowledged", dlock.WithFixedTTL(failoverTTL)) // replicas of a busy machine may be late
	given := r.lockWithRetry(t, contender, "unheard")
	r.Failover.Isolate()
	unlock(t, given) // a release needs no acknowledgement
	lease, err := c.Lock(t.Context(), "unheard", dlock.WithTTL(failoverTTL))
	if !errors.Is(err, r.Failover.NotAcknowledged) {
		t.Errorf("Lock without replicas: %v, %v; want %v", lease, err, r.Failover.NotAcknowledged)
	}
	t.Logf("without replicas Lock returns: %v", err)
	r.mustBecomeFree(t, "unheard") // the client has released it, or is about to
	// The store itself leaves an acquisition to its owner.
	store := r.open(t)
	req := driver.Request{Name: "unheard", Owner: driver.NewOwner(), TTL: failoverTTL}
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, r.Failover.NotAcknowledged) {
		t.Errorf("Acquire without replicas: %v; want %v", err, r.Failover.NotAcknowledged)
	}
	if err := store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}); err != nil {
		t.Errorf("Release of a lock that was not acknowledged: %v", err)
	}
	if listed(t, store, "unheard") {
		t.Error("the lock is held although it was released")
	}
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := r.lockWithRetry(t, contender, "unheard")
	unlock(t, next)
	r.mustBeHeld(t, "acknowledged", "a replica had acknowledged it")
	if err := kept.Context().Err(); err != nil {
		t.Errorf("the lease that was acknowledged: %v", err)
	}
	unlock(t, kept)
	again := r.lockWithRetry(t, contender, "acknowledged", dlock.WithWait(r.TTL)) // less than failoverTTL
	if again.Token() <= kept.Token() {
		t.Errorf("token %d after %d", again.Token(), kept.Token())
	}
	unlock(t, again)
}

// lockWithRetry repeats Lock while the store is unreachable.
func (r rig) lockWithRetry(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); wait(t, 10*time.Millisecond) {
		var lease *dlock.Lease
		if lease, err = c.Lock(t.Context(), name, append([]dlock.Option{dlock.WithTTL(r.TTL)}, opts...)...); err == nil {
			return lease
		}
		if !errors.Is(err, dlock.ErrUnreachable) && !errors.Is(err, r.notAcknowledged()) {
			break
		}
	}
	t.Fatalf("Lock(%q), with retries: %v", name, err)
	return nil
}
