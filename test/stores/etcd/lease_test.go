package etcd

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestAbandonedAttemptTakesNoOtherLease: an attempt is abandoned and released on its way to the
// server, where its lease has just been revoked. It leaves nothing behind, and does not try another
// lease: that would hold the lock for a moment although no caller wants it.
func TestAbandonedAttemptTakesNoOtherLease(t *testing.T) {
	t.Parallel()
	for kind, change := range attempts {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			req := request("late")
			change(&req)
			if req.Queue {
				want.Watch(t, r.store, request("late")) // then an attempt with Queue takes a place
			}
			want.Renew(t, r.store, "of what is held", r.kept)
			r.proxy.Hold(proxy.Requests)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			want.Unknown(t, "Acquire without an answer", want.Err(r.store.Acquire(ctx, req)))
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			want.Unknown(t, "released without an answer", r.store.Release(ctx, want.Undo(req)))
			revokeLeaseOf(t, r.raw, first(t, r.raw, "kept"))
			written := r.raw.Watch(t.Context(), "late/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			<-written
			r.proxy.Deliver()
			if errs := r.store.Renew(t.Context(), []driver.Grant{r.kept}); errs == nil { // what was sent before was carried out
				t.Fatal("a lock on a revoked lease was renewed")
			}
			want.Acquire(t, r.store, request("other")) // there is another lease
			granted := want.Acquire(t, r.other, request("late"))
			first := (<-written).Events[0].Kv
			if uint64(first.CreateRevision) != tokenstep.Number(granted.Token) {
				t.Errorf("the abandoned attempt wrote %q", first.Key)
			}
		})
	}
}

// TestGrantPromisesNoMoreThanItsLease: locks share a lease, which is not renewed for every
// lock. A lock is granted for no longer than the lease lasts.
func TestGrantPromisesNoMoreThanItsLease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	store := newStore(t, server.URL())
	const ttl = 20 * time.Second
	req := func(name string) driver.Request {
		req := request(name)
		req.TTL = ttl
		return req
	}
	for try := range 20 {
		want.Acquire(t, store, req(fmt.Sprint("first", try)))
		renewed := time.Now() // the lease was granted or renewed before
		kept := requests(t, server, "LeaseKeepAlive")
		sent := time.Now()
		second := want.Acquire(t, store, req(fmt.Sprint("second", try)))
		if requests(t, server, "LeaseKeepAlive") != kept {
			continue // the machine is so slow that the lease was renewed
		}
		if promised, ends := sent.Add(second.TTL), renewed.Add(ttl); promised.After(ends) {
			t.Errorf("a lock is granted until %v after its lease may have ended", promised.Sub(ends))
		}
		return
	}
	t.Fatal("the lease was renewed for every lock: this test shows nothing")
}

// TestRenewalCountsFromItsRequest: a lease counts as renewed from the moment when the renewal
// was sent. A lease whose renewal was answered late is renewed again for the next lock.
func TestRenewalCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	const slack = 1100 * time.Millisecond // more than a renewal may be old
	start := time.Now()
	await.Until(t, "the lease has to be renewed", func() bool { return time.Since(start) > slack })
	kept := requests(t, r.server, "LeaseKeepAlive")
	r.proxy.Hold(proxy.Replies)
	got := make(chan driver.Grant, 1)
	go func() { got <- want.Acquire(t, r.store, request("slow")) }()
	await.Until(t, "the server renews the lease", func() bool { return requests(t, r.server, "LeaseKeepAlive") == kept+1 })
	renewed := time.Now()
	await.Until(t, "that was a while ago", func() bool { return time.Since(renewed) > slack })
	r.proxy.Deliver()
	<-got
	want.Acquire(t, r.store, request("next"))
	if n := requests(t, r.server, "LeaseKeepAlive") - kept; n < 2 {
		t.Errorf("a lock was granted on a lease that was last renewed more than %v ago", slack)
	}
}

// grantOfLease matches the request for a lease of so many seconds.
func grantOfLease(seconds byte) func([]byte) bool {
	return contains(string([]byte{0x08, seconds, 0x10})) // TTL, then the beginning of ID
}

// TestUnansweredLeaseIsUsed: the store finds a lease whose grant was not answered, and asks for no
// second one.
func TestUnansweredLeaseIsUsed(t *testing.T) {
	t.Parallel()
	for how, reset := range map[string]bool{"silent": false, "reset": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			lost := r.proxy.LoseReply(grantOfLease(100), reset)
			req := request("x")
			req.TTL = 100 * time.Second
			grant := want.Acquire(t, r.store, req)
			happens(t, lost)
			if leases := r.leases(); len(leases) != 2 {
				t.Errorf("there are the leases %v; want one for each TTL", leases)
			}
			want.Release(t, r.store, grant)
		})
	}
}

// TestUnansweredLeaseThatEndedIsNotUsed: a lease whose grant was not answered, and that has
// ended when the store finds it, is not used.
func TestUnansweredLeaseThatEndedIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	before := r.leases()
	ended := make(chan struct{})
	r.proxy.OnRequest(grantOfLease(100), func(c *proxy.Conn) {
		lost := c.LoseReplies()
		go func() {
			<-lost // or an acknowledgement that came before
			await.Until(t, "the lease exists", func() bool { return len(r.leases()) > len(before) })
			c.Reset()
		}()
		r.proxy.OnRequest(grantOfLease(100), func(*proxy.Conn) { // again: it exists now
			for _, l := range r.leases() {
				if !slices.Contains(before, l) {
					renewal := string(binary.AppendUvarint([]byte{0x08}, uint64(l.ID)))
					r.proxy.OnRequest(contains(renewal), func(*proxy.Conn) {
						defer close(ended)
						if _, err := r.raw.Revoke(t.Context(), l.ID); err != nil {
							t.Error(err)
						}
					})
				}
			}
		})
	})
	req := request("x")
	req.TTL = 100 * time.Second
	grant := want.Acquire(t, r.store, req)
	happens(t, ended)
	if grant.TTL <= 0 {
		t.Errorf("granted for %v", grant.TTL)
	}
	want.Renew(t, r.store, "on another lease", grant)
}

// TestCloseRevokesAnUnansweredLease: Close revokes a lease whose grant was not answered.
func TestCloseRevokesAnUnansweredLease(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	lost := r.proxy.LoseReply(grantOfLease(100), false)
	failed := make(chan error, 1)
	go func() {
		req := request("x")
		req.TTL = 100 * time.Second
		failed <- want.Err(r.store.Acquire(t.Context(), req))
	}()
	happens(t, lost)
	await.Until(t, "the lease is granted", func() bool { return len(r.leases()) == 2 })
	want.OK(t, r.store.Close())
	want.Error(t, "Acquire", <-failed, driver.ErrClosed)
	if left, err := leftovers(t.Context(), r.raw); err != nil || len(left) > 0 {
		t.Errorf("after Close: %q, %v", left, err)
	}
}

// TestEndedLeasesAreForgotten: a store that used many TTLs does not remember the leases that ended
// because no lock needed them any more. Close revokes only the one that is left.
func TestEndedLeasesAreForgotten(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	r := &lateRig{t: t, raw: rawClient(t, server.URL())}
	store := want.Value(open(t.Context(), server.URL()))(t)
	for seconds := range 3 {
		req := request("x")
		req.TTL = time.Duration(2+seconds) * time.Second
		want.Release(t, store, want.Acquire(t, store, req))
	}
	await.Until(t, "the leases have ended", func() bool { return len(r.leases()) == 0 })
	want.Acquire(t, store, request("x"))
	want.OK(t, store.Close())
	if n := requests(t, server, "LeaseRevoke"); n != 1 {
		t.Errorf("Close revoked %v leases; want 1", n)
	}
}

// TestServerMayAllowFewOperations: on a server that allows fewer operations in a transaction than
// the store has locks, all locks are renewed, and those that are not end although others keep their
// lease.
func TestServerMayAllowFewOperations(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, "--max-txn-ops=5")
	raw, store := rawClient(t, server.URL()), newStore(t, server.URL())
	var grants []driver.Grant
	for i := range 20 {
		req := request(fmt.Sprint("name", i))
		req.TTL = 3 * time.Second
		grants = append(grants, want.Acquire(t, store, req))
	}
	want.Renew(t, store, "of all", grants...)
	await.Until(t, "all locks but the one that is renewed have ended", func() bool {
		want.Renew(t, store, "while others end", grants[0])
		keys, err := raw.Get(t.Context(), "name", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && keys.Count == 1
	})
}

// TestAttemptOnARevokedLeaseTakesAnother: an attempt whose lease was revoked gets the lock on
// another lease.
func TestAttemptOnARevokedLeaseTakesAnother(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		revoked := r.proxy.OnRequest(contains("x/"), func(*proxy.Conn) { revokeLeaseOf(t, r.raw, first(t, r.raw, "kept")) })
		grant := want.Acquire(t, r.store, request("x"))
		happens(t, revoked)
		want.Renew(t, r.store, "on another lease", grant)
	})
}
