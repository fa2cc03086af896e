package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// attempts are the kinds of attempts. Those with Queue leave a place in the queue.
var attempts = map[string]func(*driver.Request){
	"try":   func(*driver.Request) {},
	"place": func(req *driver.Request) { req.Queue = true },
	"fair":  func(req *driver.Request) { req.Queue, req.Fair = true, true },

	"shared": func(req *driver.Request) { req.Mode.Shared = true },
	"permit": func(req *driver.Request) { req.Mode.Limit = 2 },
}

// TestOvertakenAttemptIsUndone: an attempt that is carried out after its owner got an answer
// over another connection, and released the lock, is undone by the next renewal of the lease.
func TestOvertakenAttemptIsUndone(t *testing.T) {
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
			// The test writes the key itself, as if the silenced connection delivered the attempt late.
			kv := there.Kvs[0]
			if _, err := r.raw.Put(t.Context(), string(kv.Key), "", clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
				t.Fatal(err)
			}
			r.stillHeld(r.store, r.kept, "when an attempt was carried out late")
			r.acquire(r.other, request("late"))
		})
	}
}

// TestOvertakenReleaseDeletesNoLaterLock: a release that is carried out after it was repeated
// over another connection deletes no later lock of the same store.
func TestOvertakenReleaseDeletesNoLaterLock(t *testing.T) {
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
	// The test deletes the key itself, as if the silenced connection delivered the request late.
	if _, err := r.raw.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r.stillHeld(r.store, second, "when a release of the lock before it was carried out late")
}

// TestRepeatedReleaseThatFindsNothingIsUnreachable: the first request of a release is lost, another
// owner has the lock meanwhile, and the second request finds nothing. Release must not report that it
// gave up the lock.
func TestRepeatedReleaseThatFindsNothingIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	stale := r.acquire(r.store, request("x"))
	silent := r.silenceAt(r.keyOf("x"))
	released := make(chan error, 1)
	go func() { released <- r.store.Release(t.Context(), stale) }()
	happens(t, silent)
	if err := r.other.(driver.Breaker).Break(t.Context(), "x", stale.Token); err != nil {
		t.Fatal(err)
	}
	r.acquire(r.other, request("x"))
	if err := <-released; !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Release of a lock that was lost meanwhile: %v; want ErrUnreachable", err)
	}
	if err := r.store.Release(t.Context(), stale); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the next Release: %v; want ErrNotHeld", err)
	}
}

// TestOvertakenExpiryDeletesNoLaterLock: the deletion of an expired lock that is carried out
// late deletes no later lock of the same store.
func TestOvertakenExpiryDeletesNoLaterLock(t *testing.T) {
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
		r.stillHeld(r.store, r.kept, "when another lock expired")
		var err error
		second, err = r.store.Acquire(t.Context(), request("x"))
		return err == nil
	})
	// The test deletes the key itself, as if the silenced connection delivered the request late.
	if _, err := r.raw.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r.stillHeld(r.store, second, "when the deletion of an expired lock was carried out late")
}

// TestReleaseCanBeRepeatedAfterARestart: a release that was under way when the server was killed
// does not release a later lock, and can be repeated.
func TestReleaseCanBeRepeatedAfterARestart(t *testing.T) {
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
	// The test deletes the key itself, as if the client repeated the request.
	if _, err := r.raw.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r.stillHeld(r.store, second, "when a release of the lock before it was repeated")
	r.stillHeld(r.store, r.kept, "after a restart")
}

// TestStaleCallsLeaveALaterLockAlone: the keys of a lease are used again. A late or repeated
// release or renewal of an earlier lock, through any store, leaves the later lock alone.
func TestStaleCallsLeaveALaterLockAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, staleCalls)
}

func staleCalls(t *testing.T, r *lateRig) {
	t.Helper()
	first := r.acquire(r.store, request("x"))
	key := r.keyOf("x")
	r.release(r.other, first) // a lock may be released through any store
	eventually(t, "its own store has noticed", func() bool {
		return errors.Is(errors.Join(r.store.Renew(t.Context(), []driver.Grant{first})...), driver.ErrNotHeld)
	})
	second := r.acquire(r.store, request("x"))
	if now := r.keyOf("x"); now != key {
		t.Fatalf("the key is %q, not %q again, this test shows nothing", now, key)
	}
	for range 2 {
		for which, store := range map[string]driver.Store{"its own store": r.store, "another store": r.other} {
			if err := store.Release(t.Context(), first); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a stale Release through %s: %v; want ErrNotHeld", which, err)
			}
			err := errors.Join(store.Renew(t.Context(), []driver.Grant{first})...)
			if !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a stale Renew through %s: %v; want ErrNotHeld", which, err)
			}
		}
	}
	r.stillHeld(r.store, second, "after stale calls")
	if _, err := r.other.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a held lock after stale calls: %v; want ErrHeld", err)
	}
}

// TestOvertakenBreakBreaksNothing: a break that is overtaken by a release and the next
// acquisition with the same key breaks nothing.
func TestOvertakenBreakBreaksNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, overtakeBreak)
}

func overtakeBreak(t *testing.T, r *lateRig) {
	t.Helper()
	first := r.acquire(r.other, request("x"))
	key := r.keyOf("x")
	var second driver.Grant
	overtaken := r.proxy.OnRequest(contains(key), func(*proxy.Conn) { // the request before it has only the name
		r.release(r.other, first)
		second = r.acquire(r.other, request("x"))
	})
	err := r.store.(driver.Breaker).Break(t.Context(), "x", first.Token)
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Break of a lock that was released meanwhile: %v; want ErrNotHeld", err)
	}
	happens(t, overtaken)
	if now := r.keyOf("x"); now != key {
		t.Fatalf("the key is %q, not %q again, this test shows nothing", now, key)
	}
	r.stillHeld(r.other, second, "after a break of the lock before it")
}

// TestUnansweredBreakIsNoCancellation: a break whose answer was lost finds nothing when it is repeated,
// and cannot know what ended the lock. Its error says so, and not that the context ended, which the
// caller would take for its own.
func TestUnansweredBreakIsNoCancellation(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	grant := r.acquire(r.other, request("x"))
	lost := r.proxy.LoseReply(contains(r.keyOf("x")), false)
	err := r.store.(driver.Breaker).Break(t.Context(), "x", grant.Token)
	happens(t, lost)
	if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Break without an answer: %v; want ErrUnreachable, and no end of a context", err)
	}
}

// TestStaleTokenRenewsNothing: a renewal with the token of an earlier lock of the same owner changes
// nothing.
func TestStaleTokenRenewsNothing(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	req := request("x")
	first := r.acquire(r.store, req)
	r.release(r.store, first)
	second := r.acquire(r.store, req)
	if err := errors.Join(r.store.Renew(t.Context(), []driver.Grant{first})...); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew with an earlier token: %v; want ErrNotHeld", err)
	}
	r.stillHeld(r.store, second, "after a stale renewal")
}

// TestWatchedPlaceOutlivesItsTTL: a waiter keeps its place for longer than its TTL.
func TestWatchedPlaceOutlivesItsTTL(t *testing.T) {
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
