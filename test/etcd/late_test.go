package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/proxy"
	"github.com/dlock-go/dlock/test/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lateRig is a store behind a proxy that can hold a connection back. The store keeps a
// lock of its own, so that the lease goes on which its locks share.
type lateRig struct {
	t      *testing.T
	server *servers.Server
	raw    *clientv3.Client
	proxy  *proxy.Proxy
	store  driver.Store // behind the proxy
	other  driver.Store // not behind it
	kept   driver.Grant
}

func newLateRig(t *testing.T) *lateRig {
	t.Helper()
	return lateRigOn(t, servers.Run(t, servers.Etcd))
}

// onBoth runs a test on a current server and on an old one.
func onBoth(t *testing.T, test func(t *testing.T, r *lateRig)) {
	t.Helper()
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, lateRigOn(t, servers.Run(t, kind)))
		})
	}
}

func lateRigOn(t *testing.T, server *servers.Server) *lateRig {
	t.Helper()
	p := proxy.Run(t, server.Addr())
	r := &lateRig{t: t, server: server, proxy: p, raw: rawClient(t, server.URL()), other: newStore(t, server.URL())}
	r.store = storeOver(t, p.Addr(), nil)
	r.kept = r.acquire(r.store, request("kept"))
	return r
}

func (r *lateRig) acquire(store driver.Store, req driver.Request) driver.Grant {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	grant, err := store.Acquire(ctx, req)
	if err != nil {
		r.t.Fatalf("Acquire(%q): %v", req.Name, err)
	}
	return grant
}

func (r *lateRig) release(store driver.Store, grant driver.Grant) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	if err := store.Release(ctx, grant); err != nil {
		r.t.Errorf("Release(%q): %v", grant.Name, err)
	}
}

// holds demands that the store still has the lock.
func (r *lateRig) holds(store driver.Store, grant driver.Grant, when string) {
	r.t.Helper()
	if errs := store.Renew(r.t.Context(), []driver.Grant{grant}); errs != nil {
		r.t.Errorf("Renew(%q) %s: %v", grant.Name, when, errs[0])
	}
}

// keyOf is the key of the first in the queue of a name.
func (r *lateRig) keyOf(name string) string {
	r.t.Helper()
	reply, err := r.raw.Get(r.t.Context(), name+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(reply.Kvs) != 1 {
		r.t.Fatalf("the key of %q: %v, %v", name, reply, err)
	}
	return string(reply.Kvs[0].Key)
}

func (r *lateRig) leases() []clientv3.LeaseStatus {
	r.t.Helper()
	reply, err := r.raw.Leases(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return reply.Leases
}

// silenceAt makes the connection silent just before a request passes that contains a text.
func (r *lateRig) silenceAt(text string) (happened <-chan struct{}) {
	return r.proxy.OnRequest(contains(text), func(*proxy.Conn) { r.proxy.Silence() })
}

// happens waits for something that must happen.
func happens(t testing.TB, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(limit):
		t.Fatalf("it did not happen within %v", limit)
	}
}

func contains(text string) func([]byte) bool {
	return func(sent []byte) bool { return bytes.Contains(sent, []byte(text)) }
}

// attempts are the kinds of attempts. All but the first leave a place in the queue.
var attempts = map[string]func(*driver.Request){
	"try":   func(*driver.Request) {},
	"place": func(req *driver.Request) { req.Queue = true },
	"fair":  func(req *driver.Request) { req.Queue, req.Fair = true, true },
}

// watch makes the owner of a request a waiter.
func (r *lateRig) watch(req driver.Request) {
	r.t.Helper()
	stop, err := r.store.(driver.Watcher).Watch(r.t.Context(), req, func() {})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(stop)
}

// TestOvertakenAttempt: an attempt that is carried out after its owner got an answer over
// another connection, and released everything, is undone by the next renewal of the lease.
func TestOvertakenAttempt(t *testing.T) {
	t.Parallel()
	for kind, change := range attempts {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			req := request("late")
			change(&req)
			var blocker driver.Grant
			if req.Queue {
				blocker = r.acquire(r.other, request("late"))
				r.watch(req)
			}
			silent := r.silenceAt("late/")
			grant, err := r.store.Acquire(t.Context(), req)
			if (err == nil) == req.Queue {
				t.Fatalf("Acquire: %v", err)
			}
			happens(t, silent)
			there, err := r.raw.Get(t.Context(), "late/", clientv3.WithLastCreate()...)
			if err != nil || len(there.Kvs) != 1 {
				t.Fatalf("%v, %v", there, err)
			}
			err = r.store.Release(t.Context(), driver.Grant{Name: "late", Owner: req.Owner, Token: grant.Token})
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Fatal(err)
			}
			if req.Queue {
				r.release(r.other, blocker)
			}
			kv := there.Kvs[0] // what the first connection delivers late
			if _, err := r.raw.Put(t.Context(), string(kv.Key), "", clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
				t.Fatal(err)
			}
			r.holds(r.store, r.kept, "when an attempt was carried out late")
			r.acquire(r.other, request("late"))
		})
	}
}

// TestGivenUpOnRevokedLease: an attempt that was given up and released while it was on its
// way to the server, where its lease had just been revoked, leaves nothing.
func TestGivenUpOnRevokedLease(t *testing.T) {
	t.Parallel()
	for kind, change := range attempts {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			req := request("late")
			change(&req)
			if req.Queue {
				r.watch(request("late")) // where others wait, an attempt takes a place
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
			r.proxy.Deliver()
			if errs := r.store.Renew(t.Context(), []driver.Grant{r.kept}); errs == nil { // what was sent before was carried out
				t.Fatal("a lock on a revoked lease was renewed")
			}
			r.acquire(r.store, request("other")) // there is another lease
			eventually(t, "the name is free", func() bool {
				keys, err := r.raw.Get(t.Context(), "late/", clientv3.WithPrefix())
				return err == nil && len(keys.Kvs) == 0
			})
			r.acquire(r.other, request("late"))
		})
	}
}

// TestOvertakenRelease: a release that is carried out after it was repeated over another
// connection deletes no later lock of the same store.
func TestOvertakenRelease(t *testing.T) {
	t.Parallel()
	onBoth(t, overtakeRelease)
}

func overtakeRelease(t *testing.T, r *lateRig) {
	t.Helper()
	first := r.acquire(r.store, request("x"))
	key := r.keyOf("x")
	silent := r.silenceAt(key)
	r.release(r.store, first)
	happens(t, silent)
	second := r.acquire(r.store, request("x"))
	if _, err := r.raw.Delete(t.Context(), key); err != nil { // what the first connection delivers late
		t.Fatal(err)
	}
	r.holds(r.store, second, "when a release of the lock before it was carried out late")
}

// TestOvertakenExpiry: the deletion of an expired lock that is carried out late deletes no
// later lock of the same store.
func TestOvertakenExpiry(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	// A lock expires before its lease if its owner queued with a longer TTL.
	expires := request("x")
	expires.Queue, expires.Fair = true, true
	before := r.acquire(r.other, request("x"))
	if _, err := r.store.Acquire(t.Context(), expires); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v", err)
	}
	r.release(r.other, before)
	key := r.keyOf("x")
	deletion := r.silenceAt(string(append([]byte{0x0a, byte(len(key))}, key...))) // the key is its first field
	expires.TTL = 2 * time.Second
	r.acquire(r.store, expires)
	happens(t, deletion)
	var second driver.Grant
	eventually(t, "a renewal of the lease deletes the key", func() (ok bool) {
		r.holds(r.store, r.kept, "when another lock expired")
		var err error
		second, err = r.store.Acquire(t.Context(), request("x"))
		return err == nil
	})
	if _, err := r.raw.Delete(t.Context(), key); err != nil { // what the first connection delivers late
		t.Fatal(err)
	}
	r.holds(r.store, second, "when the deletion of an expired lock was carried out late")
}

// TestRestartDuringRelease: a release that was on its way when the server was killed does
// not release a later lock, and can be repeated.
func TestRestartDuringRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, servers.EtcdSynced)
	r := lateRigOn(t, server)
	first := r.acquire(r.store, request("x"))
	key := r.keyOf("x")
	killed := r.proxy.OnRequest(contains(key), func(*proxy.Conn) {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err := r.store.Release(t.Context(), first); !errors.Is(err, driver.ErrUnreachable) {
		t.Fatalf("Release when the server was killed: %v; want ErrUnreachable", err)
	}
	happens(t, killed)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.other.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a lock that was not released: %v", err)
	}
	r.release(r.store, first)
	second := r.acquire(r.store, request("x"))
	if _, err := r.raw.Delete(t.Context(), key); err != nil { // what is repeated
		t.Fatal(err)
	}
	r.holds(r.store, second, "when a release of the lock before it was repeated")
	r.holds(r.store, r.kept, "after a restart")
}

// TestStaleCallsThroughAnotherStore: keys of one lease are used again. A release or a
// renewal of an earlier lock, late or repeated, through whichever store, leaves the later
// lock alone.
func TestStaleCallsThroughAnotherStore(t *testing.T) {
	t.Parallel()
	onBoth(t, staleCalls)
}

func staleCalls(t *testing.T, r *lateRig) {
	t.Helper()
	first := r.acquire(r.store, request("x"))
	key := r.keyOf("x")
	r.release(r.other, first) // a lock may be released through any store
	eventually(t, "its own store knows", func() bool {
		return errors.Is(errors.Join(r.store.Renew(t.Context(), []driver.Grant{first})...), driver.ErrNotHeld)
	})
	second := r.acquire(r.store, request("x"))
	if now := r.keyOf("x"); now != key {
		t.Fatalf("the key is %q, not %q again, so that this test shows nothing", now, key)
	}
	for range 2 {
		for who, store := range map[string]driver.Store{"its own store": r.store, "another store": r.other} {
			if err := store.Release(t.Context(), first); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a stale Release through %s: %v; want ErrNotHeld", who, err)
			}
			err := errors.Join(store.Renew(t.Context(), []driver.Grant{first})...)
			if !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a stale Renew through %s: %v; want ErrNotHeld", who, err)
			}
		}
	}
	r.holds(r.store, second, "after stale calls")
	if _, err := r.other.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a held lock after stale calls: %v; want ErrHeld", err)
	}
}

// TestBreakOvertaken: a break that is overtaken by a release and the next acquisition
// of the same key breaks nothing.
func TestBreakOvertaken(t *testing.T) {
	t.Parallel()
	onBoth(t, overtakeBreak)
}

func overtakeBreak(t *testing.T, r *lateRig) {
	t.Helper()
	first := r.acquire(r.other, request("x"))
	key := r.keyOf("x")
	var second driver.Grant
	overtaken := r.proxy.OnRequest(contains(key), func(*proxy.Conn) { // the look has only the name
		r.release(r.other, first)
		second = r.acquire(r.other, request("x"))
	})
	err := r.store.(driver.Breaker).Break(t.Context(), "x", first.Token)
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Break of a lock that was released meanwhile: %v; want ErrNotHeld", err)
	}
	happens(t, overtaken)
	if now := r.keyOf("x"); now != key {
		t.Fatalf("the key is %q, not %q again, so that this test shows nothing", now, key)
	}
	r.holds(r.other, second, "after a break of the lock before it")
}

// TestGrantLastsAsPromised: locks share a lease, which is not renewed for every lock. A
// lock that came later than the last renewal is promised no more than the lease has left.
func TestGrantLastsAsPromised(t *testing.T) {
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
			t.Errorf("a lock is promised until %v after its lease may have ended", promised.Sub(ends))
		}
		return
	}
	t.Fatal("the lease was renewed for every lock, so that this test shows nothing")
}

// TestRenewalIsAsOldAsItsRequest: a lease counts as renewed from the moment when the
// renewal was sent. One whose answer came late is renewed again for the next lock.
func TestRenewalIsAsOldAsItsRequest(t *testing.T) {
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

// TestLeaseGrantedUnheard: a lease whose grant went unanswered is used, and there is no
// second one.
func TestLeaseGrantedUnheard(t *testing.T) {
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

// TestLeaseEndsUnheard: a lease whose grant went unanswered, and which has ended when the
// store finds it again, is not used.
func TestLeaseEndsUnheard(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	before := r.leases()
	ended := make(chan struct{})
	r.proxy.OnRequest(grantOfLease(100), func(c *proxy.Conn) {
		lost := c.LoseReplies()
		go func() {
			<-lost
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
	r.holds(r.store, grant, "on another lease")
}

// TestCloseEndsLeaseGrantedUnheard: Close leaves no lease behind whose grant went
// unanswered.
func TestCloseEndsLeaseGrantedUnheard(t *testing.T) {
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

// TestStaleTokenOfTheSameOwner: a renewal with the token of an earlier lock of the same
// owner changes nothing.
func TestStaleTokenOfTheSameOwner(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	req := request("x")
	first := r.acquire(r.store, req)
	r.release(r.store, first)
	second := r.acquire(r.store, req)
	if err := errors.Join(r.store.Renew(t.Context(), []driver.Grant{first})...); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew with an earlier token: %v; want ErrNotHeld", err)
	}
	r.holds(r.store, second, "after a stale renewal")
}

// TestAttemptOnRevokedLease: an attempt that finds out that its lease was revoked gets the
// lock on another lease.
func TestAttemptOnRevokedLease(t *testing.T) {
	t.Parallel()
	onBoth(t, attemptOnRevokedLease)
}

func attemptOnRevokedLease(t *testing.T, r *lateRig) {
	t.Helper()
	revoked := r.proxy.OnRequest(contains("x/"), func(*proxy.Conn) { revokeLeaseOf(t, r.raw, "kept/") })
	grant := r.acquire(r.store, request("x"))
	happens(t, revoked)
	r.holds(r.store, grant, "on another lease")
}

// TestPlaceIsKeptWhileWatched: a waiter keeps its place for longer than its TTL.
func TestPlaceIsKeptWhileWatched(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	r.acquire(r.other, request("x"))
	req := request("x")
	req.TTL, req.Queue = 2*time.Second, true
	r.watch(req)
	if _, err := r.store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v", err)
	}
	place, err := r.raw.Get(t.Context(), "x/", clientv3.WithLastCreate()...)
	if err != nil || len(place.Kvs) != 1 {
		t.Fatalf("%v, %v", place, err)
	}
	start := time.Now()
	eventually(t, "the lease would have ended", func() bool { return time.Since(start) > 2*req.TTL })
	now, err := r.raw.Get(t.Context(), string(place.Kvs[0].Key))
	if err != nil || len(now.Kvs) != 1 || now.Kvs[0].CreateRevision != place.Kvs[0].CreateRevision {
		t.Errorf("the place is %v, %v; want %v", now, err, place.Kvs[0])
	}
}
