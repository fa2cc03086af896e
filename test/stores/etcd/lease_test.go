package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
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
				r.watch(request("late")) // then an attempt with Queue takes a place
			}
			if errs := r.store.Renew(t.Context(), []driver.Grant{r.kept}); errs != nil { // so that the attempt comes first
				t.Fatal(errs)
			}
			r.proxy.Hold(proxy.Requests)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := r.store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Acquire without an answer: %v", err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := r.store.Release(ctx, driver.Grant{Name: req.Name, Owner: req.Owner}); err == nil {
				t.Fatal("released without an answer")
			}
			revokeLeaseOf(t, r.raw, "kept/")
			written := r.raw.Watch(t.Context(), "late/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			<-written
			r.proxy.Deliver()
			if errs := r.store.Renew(t.Context(), []driver.Grant{r.kept}); errs == nil { // what was sent before was carried out
				t.Fatal("a lock on a revoked lease was renewed")
			}
			r.acquire(r.store, request("other")) // there is another lease
			granted := r.acquire(r.other, request("late"))
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
		return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl}
	}
	for try := range 20 {
		if _, err := store.Acquire(t.Context(), req(fmt.Sprint("first", try))); err != nil {
			t.Fatal(err)
		}
		renewed := time.Now() // the lease was granted or renewed before
		kept := requests(t, server, "LeaseKeepAlive")
		sent := time.Now()
		second, err := store.Acquire(t.Context(), req(fmt.Sprint("second", try)))
		if err != nil {
			t.Fatal(err)
		}
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
	eventually(t, "the lease has to be renewed", func() bool { return time.Since(start) > slack })
	kept := requests(t, r.server, "LeaseKeepAlive")
	r.proxy.Hold(proxy.Replies)
	got := make(chan driver.Grant, 1)
	go func() { got <- r.acquire(r.store, request("slow")) }()
	eventually(t, "the server renews the lease", func() bool { return requests(t, r.server, "LeaseKeepAlive") == kept+1 })
	renewed := time.Now()
	eventually(t, "that was a while ago", func() bool { return time.Since(renewed) > slack })
	r.proxy.Deliver()
	<-got
	r.acquire(r.store, request("next"))
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
			grant := r.acquire(r.store, req)
			happens(t, lost)
			if leases := r.leases(); len(leases) != 2 {
				t.Errorf("there are the leases %v; want one for each TTL", leases)
			}
			r.release(r.store, grant)
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
			eventually(t, "the lease exists", func() bool { return len(r.leases()) > len(before) })
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
	grant := r.acquire(r.store, req)
	happens(t, ended)
	if grant.TTL <= 0 {
		t.Errorf("granted for %v", grant.TTL)
	}
	r.stillHeld(r.store, grant, "on another lease")
}

// TestCloseRevokesAnUnansweredLease: Close revokes a lease whose grant was not answered.
func TestCloseRevokesAnUnansweredLease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store, err := open(t.Context(), "etcd://"+p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	lost := p.LoseReply(grantOfLease(60), false)
	failed := make(chan error, 1)
	go func() {
		_, err := store.Acquire(t.Context(), request("x"))
		failed <- err
	}()
	happens(t, lost)
	eventually(t, "the lease is granted", func() bool {
		leases, err := raw.Leases(t.Context())
		return err == nil && len(leases.Leases) == 1
	})
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire: %v; want ErrClosed", err)
	}
	if left, err := leftovers(t.Context(), raw); err != nil || len(left) > 0 {
		t.Errorf("after Close: %q, %v", left, err)
	}
}

// TestEndedLeasesAreForgotten: a store that used many TTLs does not remember the leases that ended
// because no lock needed them any more. Close revokes only the one that is left.
func TestEndedLeasesAreForgotten(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	r := &lateRig{t: t, raw: rawClient(t, server.URL())}
	store, err := open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	for seconds := range 3 {
		req := request("x")
		req.TTL = time.Duration(2+seconds) * time.Second
		r.release(store, r.acquire(store, req))
	}
	eventually(t, "the leases have ended", func() bool { return len(r.leases()) == 0 })
	r.acquire(store, request("x"))
	if err := store.Close(); err != nil {
		t.Error(err)
	}
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
	r := &lateRig{t: t, raw: rawClient(t, server.URL())}
	store := newStore(t, server.URL())
	var grants []driver.Grant
	for i := range 20 {
		req := request(fmt.Sprint("name", i))
		req.TTL = 3 * time.Second
		grants = append(grants, r.acquire(store, req))
	}
	if errs := store.Renew(t.Context(), grants); errs != nil {
		t.Fatalf("Renew: %v", errors.Join(errs...))
	}
	eventually(t, "all locks but the one that is renewed have ended", func() bool {
		r.stillHeld(store, grants[0], "while others end")
		keys, err := r.raw.Get(t.Context(), "name", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && keys.Count == 1
	})
}

// TestAttemptOnARevokedLeaseTakesAnother: an attempt whose lease was revoked gets the lock on
// another lease.
func TestAttemptOnARevokedLeaseTakesAnother(t *testing.T) {
	t.Parallel()
	onBoth(t, attemptOnRevokedLease)
}

func attemptOnRevokedLease(t *testing.T, r *lateRig) {
	t.Helper()
	revoked := r.proxy.OnRequest(contains("x/"), func(*proxy.Conn) { revokeLeaseOf(t, r.raw, "kept/") })
	grant := r.acquire(r.store, request("x"))
	happens(t, revoked)
	r.stillHeld(r.store, grant, "on another lease")
}
