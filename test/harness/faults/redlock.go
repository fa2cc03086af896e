package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/bundle"
)

// Redlock are the faults of a store that consists of five others. They need
// Members. Other tests on the same members notice them.
var Redlock = []Fault{
	{"two of five members die", minorityDies},
	{"three of five members die", majorityDies},
	{"a member comes back empty and gives its vote again", memberForgets},
	{"a member comes back empty and a renewal restores the lock", memberIsRestored},
	{"a member comes back empty after the locks it forgot have expired", memberIsDelayed},
}

func (r rig) kill(t testing.TB, members ...int) {
	t.Helper()
	for _, i := range members {
		if err := r.Members[i].Server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// minorityDies checks that the holder keeps its lock.
func minorityDies(t *testing.T, r rig) {
	c := r.client(t)
	kept := r.lock(t, c, "kept")
	r.kill(t, 0, 3)
	wait(t, r.TTL+r.TTL/2)
	stillTrusted(t, kept)
	r.mustBeHeld(t, "kept", "three of five members know it")
	unlock(t, kept)
	rises(t, r.mustBeFree(t, "kept", "it was unlocked"), kept.Token())
}

// majorityDies checks that no lock is granted, that the votes of the failed
// attempt are released, and that the holder notices in time.
func majorityDies(t *testing.T, r rig) {
	c := r.client(t)
	lease := r.lock(t, c, "doomed")
	r.kill(t, 0, 1, 2)
	dead := time.Now()
	// With this TTL a vote that is gone was released, and did not expire.
	if partial, err := c.Lock(t.Context(), "partial", dlock.WithTTL(time.Hour)); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock with two of five members: %v, %v; want that the store is unreachable", partial, err)
	}
	for _, m := range r.Members[3:] {
		rig{m}.mustBecomeFree(t, "partial")
	}
	await.Event(t, lease.Context().Done(), "the end of the lease")
	inTime(t, dead, r.TTL+slack, "the lease ended whose majority died")
	unlockLost(t, lease)
}

// bareMajority locks a name on the first three of five members only. The other
// two are dead: an attempt on its way to a member that hangs would arrive later.
func (r rig) bareMajority(t testing.TB, name string, opt dlock.Option) *dlock.Lease {
	t.Helper()
	c := r.client(t)
	unlock(t, r.lockWithRetry(t, c, warmUpName()))
	r.kill(t, 3, 4)
	lease := r.lock(t, c, name, opt)
	for i, m := range r.Members[:3] {
		if store := (rig{m}).open(t); !listed(t, store, name) {
			t.Fatalf("member %d does not have the lock", i+1)
		}
	}
	return lease
}

// memberForgets checks that the token protects the resource when the contender
// has a majority, too.
func memberForgets(t *testing.T, r rig) {
	lease := r.bareMajority(t, "forgotten", dlock.WithFixedTTL(failoverTTL)) // no renewal restores the lost vote
	for _, member := range []int{2, 3, 4} {
		r.restartEmpty(t, member)
	}
	// A Redlock may draw tokens that are ahead of its members' clocks, by as much
	// as a call to a member took. A member that came back sooner could grant a
	// smaller token.
	wait(t, r.TTL/2)
	contender, err := r.client(t).Lock(t.Context(), "forgotten", dlock.WithTTL(r.TTL), dlock.WithWait(r.TTL/2))
	if err != nil {
		t.Fatalf("Lock with three of five members that are free: %v", err)
	}
	checkTwoHolders(t, lease, contender, true)
	unlock(t, contender)
	_ = lease.Unlock(context.Background()) // releases the remaining votes
}

func (r rig) restartEmpty(t testing.TB, member int) {
	t.Helper()
	if err := r.Members[member].Server.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
}

// memberIsRestored checks that a renewal restores the lock on members that do not
// have it, so that a contender is rejected.
func memberIsRestored(t *testing.T, r rig) {
	lease := r.bareMajority(t, "restored", dlock.WithTTL(2*r.TTL))
	restores := func(m bundle.Store) {
		store := rig{m}.open(t)
		await.Until(t, "a renewal restores the lock on a member", func() bool { return listed(t, store, "restored") })
	}
	for _, member := range []int{3, 4} {
		r.restartEmpty(t, member)
		restores(r.Members[member])
	}
	r.restartEmpty(t, 2) // not before: a majority has to keep the lock
	restores(r.Members[2])
	r.mustBeHeld(t, "restored", "all members know it")
	client := r.client(t)
	await.Until(t, "the lock is found with its token", func() bool {
		info, held, err := client.Find(t.Context(), "restored")
		return err == nil && held && info.Token == lease.Token()
	})
	stillTrusted(t, lease)
	unlock(t, lease)
}

// memberIsDelayed checks that no contender gets a majority before the holder
// stops trusting its lease.
func memberIsDelayed(t *testing.T, r rig) {
	lease := r.bareMajority(t, "delayed", dlock.WithFixedTTL(r.TTL))
	r.kill(t, 2)
	killed := time.Now()
	r.restartEmpty(t, 3)
	r.restartEmpty(t, 4)
	lost := make(chan answer, 1)
	go func() { lost <- pollUntilLost(lease.Context().Err) }()
	restarted := make(chan error, 1)
	time.AfterFunc(r.TTL-time.Since(killed), func() { restarted <- r.Members[2].Server.RestartEmpty() })
	grant, granted := r.acquireWhenFree(t, r.open(t), "delayed")
	await.Event(t, lost, "the end of the lease").mustEndBefore(t, granted)
	rises(t, grant.Token, lease.Token())
	if err := await.Event(t, restarted, "the restart"); err != nil {
		t.Fatal(err)
	}
	unlockLost(t, lease)
}
