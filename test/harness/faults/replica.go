package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// RepeatedTokens are the faults of a store whose tokens are only as durable as its
// data, on a server with an asynchronous replica. They need Failover. Other tests
// on the same server notice them.
var RepeatedTokens = []Fault{{"a replica without the lock takes over", tokenRepeats}}

// tokenRepeats checks what still holds when there are two holders and the second
// may have the token of the first, so that no resource can tell them apart. The
// traits do not promise that locks survive a failover. But the late unlock of the
// first holder does not affect the second, even with the same token, and tokens
// rise again on the new server.
func tokenRepeats(t *testing.T, r rig) {
	first := r.client(t)
	if first.Traits().SurvivesFailover {
		t.Error("the traits promise that locks survive a failover")
	}
	before := r.lock(t, first, "repeated")
	unlock(t, before)
	r.Failover.Isolate()
	lease := r.lock(t, first, "repeated", dlock.WithFixedTTL(failoverTTL))
	t.Logf("the first client has the lock with token %d; the replica does not know it", lease.Token())
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	contender := r.lockWithRetry(t, r.client(t), "repeated")
	t.Logf("the replica has taken over, and the second client has the lock with token %d", contender.Token())
	if lease.Context().Err() != nil || contender.Context().Err() != nil {
		t.Errorf("one of the two holders has noticed already (%v, %v): the test shows nothing",
			lease.Context().Err(), contender.Context().Err())
	}
	if contender.Token() <= before.Token() {
		t.Errorf("token %d after %d, which the replica knew", contender.Token(), before.Token())
	}
	if contender.Token() <= lease.Token() {
		t.Log("no resource can tell the two apart by their tokens, as the traits say")
	}
	unlockLost(t, lease)
	r.mustBeHeld(t, "repeated", "the late Unlock is for an earlier grant, whatever its token is")
	if err := contender.Context().Err(); err != nil {
		t.Errorf("the late Unlock ended the lease of the new holder: %v", err)
	}
	unlock(t, contender)
	if token := r.mustBeFree(t, "repeated", "it was unlocked"); token <= contender.Token() {
		t.Errorf("token %d after %d on the server that took over", token, contender.Token())
	}
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
