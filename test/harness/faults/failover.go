package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Failover is what can be done to a server with replicas.
type Failover struct {
	// Isolate cuts the leader off from its replicas: what it is told from now
	// on, they do not hear.
	Isolate func()
	// Kill kills the leader, and returns when another one has taken over.
	Kill func(ctx context.Context) error
	// NotAcknowledged is the error of a store that demands acknowledgement by
	// replicas and does not get it.
	NotAcknowledged error
}

// Unacknowledged are the faults of a store whose leader answers before its
// replicas know, and Acknowledged of one that waits for them; for rigs with
// Failover. Others on the same server notice.
var (
	Unacknowledged = []Fault{{"the leader dies and takes a lock with it", leaderForgets}}
	Acknowledged   = []Fault{{"the leader dies without the acknowledgement of its replicas", leaderUnheard}}
)

// failoverTTL outlasts a failover, so that what happens is not just an expiry.
const failoverTTL = 30 * time.Second

// leaderForgets: there are two holders, because the new leader has never heard of
// the first. Only the token tells which one is to be obeyed.
func leaderForgets(t *testing.T, r Rig) {
	resource := new(fenced)
	first := r.client(t)
	unlock(t, r.lock(t, first, "story"))
	r.Failover.Isolate()
	lease := r.lock(t, first, "story", dlock.WithFixedTTL(failoverTTL))
	t.Logf("the first client has the lock with token %d; the leader knows it, its replicas do not", lease.Token())
	if !resource.write(lease.Token()) {
		t.Error("the first holder may not write")
	}
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("the leader has died, and a replica has taken over that has never heard of the lock")
	rival := r.lockAnyhow(t, r.client(t), "story")
	t.Logf("the second client has the lock with token %d", rival.Token())
	if lease.Context().Err() != nil || rival.Context().Err() != nil {
		t.Errorf("of the two holders one has noticed already (%v, %v), which is not what this is about",
			lease.Context().Err(), rival.Context().Err())
	}
	if rival.Token() <= lease.Token() || !resource.write(rival.Token()) {
		t.Errorf("token %d after %d, which went down with the leader", rival.Token(), lease.Token())
	}
	if resource.write(lease.Token()) {
		t.Errorf("the write of the first holder with token %d got through after token %d", lease.Token(), rival.Token())
	} else {
		t.Log("both believe that they have it; the resource, which checks tokens, refuses the first")
	}
	unlockLost(t, lease)
	r.refuses(t, "story", "the second client has it")
	unlock(t, rival)
}

// leaderUnheard: what replicas have acknowledged survives the leader, and what
// they have not is refused and not half taken.
func leaderUnheard(t *testing.T, r Rig) {
	c, rival := r.client(t), r.client(t)
	kept := r.lock(t, c, "acknowledged", dlock.WithFixedTTL(failoverTTL))
	given := r.lock(t, rival, "unheard")
	r.Failover.Isolate()
	unlock(t, given) // a release needs no acknowledgement
	lease, err := c.Lock(t.Context(), "unheard", dlock.WithTTL(failoverTTL))
	if !errors.Is(err, r.Failover.NotAcknowledged) {
		t.Errorf("Lock without replicas: %v, %v; want %v", lease, err, r.Failover.NotAcknowledged)
	}
	t.Logf("without replicas that hear it, Lock says: %v", err)
	// A store that stands alone gives it back too, before it answers.
	store := r.open(t)
	if _, err := store.Acquire(t.Context(), driver.Request{Name: "unheard", Owner: driver.NewOwner(), TTL: failoverTTL}); !errors.Is(err, r.Failover.NotAcknowledged) {
		t.Errorf("Acquire without replicas: %v; want %v", err, r.Failover.NotAcknowledged)
	}
	if listed(t, store, "unheard") {
		t.Error("the lock is held although it was not acknowledged")
	}
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := r.lockAnyhow(t, rival, "unheard")
	unlock(t, next)
	r.refuses(t, "acknowledged", "a replica had acknowledged it")
	if err := kept.Context().Err(); err != nil {
		t.Errorf("the lease that was acknowledged: %v", err)
	}
	unlock(t, kept)
	if token := r.grants(t, "acknowledged", "it was unlocked"); token <= kept.Token() {
		t.Errorf("token %d after %d", token, kept.Token())
	}
}

// lockAnyhow tries for as long as the store cannot be reached.
func (r Rig) lockAnyhow(t testing.TB, c *dlock.Client, name string) *dlock.Lease {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); wait(t, 10*time.Millisecond) {
		var lease *dlock.Lease
		if lease, err = c.Lock(t.Context(), name, dlock.WithTTL(r.TTL)); err == nil {
			return lease
		}
		if !errors.Is(err, dlock.ErrUnreachable) && !errors.Is(err, r.notAcknowledged()) {
			break
		}
	}
	t.Fatalf("Lock(%q), also when it is tried again: %v", name, err)
	return nil
}
