package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// The faults of a server with replicas need Failover. Other tests on the same server notice them.
// Unacknowledged are those of a store whose leader answers before its replicas have the write.
// Acknowledged are those of a store that waits for its replicas. RepeatedTokens are those of a store
// whose tokens are only as durable as its data, on a server with an asynchronous replica.
var (
	Unacknowledged = []Fault{{"the leader dies and takes a lock with it", func(t *testing.T, r rig) { leaderForgets(t, r, true) }}}
	Acknowledged   = []Fault{{"the leader dies without the acknowledgement of its replicas", unacknowledgedLeaderDies}}
	RepeatedTokens = []Fault{{"a replica without the lock takes over", func(t *testing.T, r rig) { leaderForgets(t, r, false) }}}
)

// failoverTTL is longer than a failover, so that no lock expires meanwhile.
const failoverTTL = 5 * time.Minute

// leaderForgets checks what still holds when there are two holders, because the new leader does not know
// the lock of the first. If tokens rise, they protect the resource. Otherwise the second holder may have the
// token of the first, so that no resource can tell them apart, and the traits do not promise that locks
// survive a failover. In both cases the late unlock of the first holder does not affect the second, even with
// the same token, and tokens rise again on the new server.
func leaderForgets(t *testing.T, r rig, tokensRise bool) {
	const name = "forgotten by the leader"
	first := r.client(t)
	if !tokensRise && first.Traits().SurvivesFailover {
		t.Error("the traits promise that locks survive a failover")
	}
	before := r.lock(t, first, name)
	unlock(t, before)
	r.Failover.Isolate()
	lease := r.lock(t, first, name, dlock.WithFixedTTL(failoverTTL))
	t.Logf("the first client has the lock with token %d; the leader knows it, its replicas do not", lease.Token())
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	contender := r.lockWithRetry(t, r.client(t), name)
	rises(t, contender.Token(), before.Token())
	checkTwoHolders(t, lease, contender, tokensRise)
	unlockLost(t, lease)
	r.mustBeHeld(t, name, "the late Unlock is for an earlier grant, whatever its token is")
	stillTrusted(t, contender)
	unlock(t, contender)
	rises(t, r.mustBeFree(t, name, "it was unlocked"), contender.Token())
}

// checkTwoHolders checks that both holders trust their leases, and that the resource, which checks tokens,
// rejects the first if tokens rise.
func checkTwoHolders(t *testing.T, first, second *dlock.Lease, tokensRise bool) {
	t.Helper()
	t.Logf("there are two holders, with tokens %d and %d", first.Token(), second.Token())
	if first.Context().Err() != nil || second.Context().Err() != nil {
		t.Errorf("one of the two holders has noticed already (%v, %v): the test shows nothing", first.Context().Err(), second.Context().Err())
	}
	if !tokensRise {
		return
	}
	resource := new(fenced)
	resource.accepts(t, first.Token())
	rises(t, second.Token(), first.Token())
	resource.accepts(t, second.Token())
	resource.rejects(t, first.Token())
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
	stillTrusted(t, kept)
	unlock(t, kept)
	again := r.lockWithRetry(t, contender, "acknowledged", dlock.WithWait(r.TTL)) // less than failoverTTL
	rises(t, again.Token(), kept.Token())
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

// RunPair starts a database with an asynchronous replica, such as
// servers.RunMariaDBPair, behind an address that moves to the replica when it
// takes over. It returns the URL with that address, and the Failover of a rig.
func RunPair(t testing.TB, run func(t testing.TB, opts servers.PairOptions) *servers.Pair) (url string, failover *bundle.Failover) {
	t.Helper()
	var link *proxy.Proxy
	pair := run(t, servers.PairOptions{ReplicaOf: func(primary string) string {
		link = proxy.Run(t, primary)
		return link.Addr()
	}})
	front := proxy.Run(t, pair.Primary.Addr())
	return strings.Replace(pair.Primary.URL(), pair.Primary.Addr(), front.Addr(), 1), &bundle.Failover{
		Isolate: func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := pair.WaitCaughtUp(ctx); err != nil {
				t.Fatal(err)
			}
			link.Hold()
		},
		Kill: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if err := pair.Primary.Kill(); err != nil {
				return err
			}
			if err := pair.Promote(ctx); err != nil {
				return err
			}
			front.Redirect(pair.Replica.Addr())
			front.Reset()
			return nil
		},
	}
}
