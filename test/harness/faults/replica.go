package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Repeated are the faults of a store whose tokens are only as good as its data,
// on a server with an asynchronous replica; for rigs with Failover. Others on the
// same server notice.
var Repeated = []Fault{{"a replica takes over that has not heard of a lock", tokenRepeats}}

// tokenRepeats: there are two holders, and the second may have the token of the
// first, so that no resource can tell them apart. Nothing can be done about it but
// to say so: the traits do not promise to survive a failover. What still holds is
// that the late unlock of the first, even with the same token, is not for the
// second, and that tokens rise again on the new server.
func tokenRepeats(t *testing.T, r Rig) {
	first := r.client(t)
	if first.Traits().SurvivesFailover {
		t.Error("the store says that locks survive a failover")
	}
	before := r.lock(t, first, "repeated")
	unlock(t, before)
	r.Failover.Isolate()
	lease := r.lock(t, first, "repeated", dlock.WithFixedTTL(failoverTTL))
	t.Logf("the first client has the lock with token %d; the replica has not heard of it", lease.Token())
	if err := r.Failover.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival := r.lockAnyhow(t, r.client(t), "repeated")
	t.Logf("the replica has taken over, and the second client has the lock with token %d", rival.Token())
	if lease.Context().Err() != nil || rival.Context().Err() != nil {
		t.Errorf("of the two holders one has noticed already (%v, %v), which is not what this is about",
			lease.Context().Err(), rival.Context().Err())
	}
	if rival.Token() <= before.Token() {
		t.Errorf("token %d after %d, which the replica had heard of", rival.Token(), before.Token())
	}
	if rival.Token() <= lease.Token() {
		t.Log("no resource can tell the two apart by their tokens, as the traits say")
	}
	unlockLost(t, lease)
	r.refuses(t, "repeated", "the late Unlock is not for it, whatever its token is")
	if err := rival.Context().Err(); err != nil {
		t.Errorf("the late Unlock ended somebody else's lease: %v", err)
	}
	unlock(t, rival)
	if token := r.grants(t, "repeated", "it was unlocked"); token <= rival.Token() {
		t.Errorf("token %d after %d on the server that took over", token, rival.Token())
	}
}

// RunPair starts a database with an asynchronous replica, such as
// servers.RunMariaDBPair, with an address in front of it that moves to the
// replica when that takes over. It returns the URL with that address, and what a
// rig needs for the faults of a failover.
func RunPair(t testing.TB, run func(t testing.TB, opts servers.PairOptions) *servers.Pair) (url string, failover *Failover) {
	t.Helper()
	var link *proxy.Proxy
	pair := run(t, servers.PairOptions{ReplicaOf: func(primary string) string {
		link = proxy.Run(t, primary)
		return link.Addr()
	}})
	front := proxy.Run(t, pair.Primary.Addr())
	return strings.Replace(pair.Primary.URL(), pair.Primary.Addr(), front.Addr(), 1), &Failover{
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
