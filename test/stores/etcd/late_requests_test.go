package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
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
				blocker = want.Acquire(t, r.other, request("late"))
				want.Watch(t, r.store, req)
			}
			silent := r.silenceAt("late/")
			grant, err := r.store.Acquire(t.Context(), req)
			if (err == nil) == req.Queue {
				t.Fatalf("Acquire: %v", err)
			}
			happens(t, silent)
			key := last(t, r.raw, "late")
			if !r.tryRelease(driver.Grant{Name: "late", Owner: req.Owner, Token: grant.Token}) {
				t.Fatal("not released")
			}
			if req.Queue {
				want.Release(t, r.other, blocker)
			}
			rewrite(t, r.raw, key)
			want.Renew(t, r.store, "when an attempt was carried out late", r.kept)
			want.Acquire(t, r.other, request("late"))
		})
	}
}

// tryRelease reports whether an owner has nothing any more after its Release.
func (r *lateRig) tryRelease(grant driver.Grant) bool {
	err := r.store.Release(r.t.Context(), grant)
	return err == nil || errors.Is(err, driver.ErrNotHeld)
}

// TestLateAttemptIsUndone: an attempt that was not answered and is carried out after its owner
// gave up is undone, also if the lease goes on for other locks. The lease ends with the last of them.
func TestLateAttemptIsUndone(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	lost := r.proxy.LoseReply(contains("late/"), true)
	late := request("late")
	want.Unknown(t, "Acquire without an answer", want.Err(r.store.Acquire(t.Context(), late)))
	happens(t, lost)
	await.Until(t, "the attempt is undone", func() bool { return r.tryRelease(want.Undo(late)) })
	key := first(t, r.raw, "kept")
	key.Key = []byte("late/" + hex(key.Lease))
	rewrite(t, r.raw, key)
	want.Renew(t, r.store, "when an attempt was carried out late", r.kept)
	want.Release(t, r.store, r.kept, want.Acquire(t, r.store, late))
	await.Until(t, "the lease of the late attempt ends", func() bool {
		reply, err := r.raw.TimeToLive(t.Context(), clientv3.LeaseID(key.Lease))
		return err == nil && reply.TTL == -1
	})
}

// TestOvertakenReleaseDeletesNoLaterLock: a release that is carried out after it was repeated, over
// another connection or by its caller, deletes no later lock of the same store.
func TestOvertakenReleaseDeletesNoLaterLock(t *testing.T) {
	t.Parallel()
	restart := func(r *lateRig, key string) <-chan struct{} {
		return r.proxy.OnRequest(contains(key), func(*proxy.Conn) {
			if err := errors.Join(r.server.Kill(), r.server.Restart()); err != nil {
				r.t.Error(err)
			}
		})
	}
	reset := func(r *lateRig, key string) <-chan struct{} { return r.proxy.LoseReply(contains(key), true) }
	for how, test := range map[string]struct {
		kind *servers.Kind
		lose func(r *lateRig, key string) <-chan struct{}
	}{
		"silent":        {servers.Etcd, (*lateRig).silenceAt},
		"silent debian": {servers.EtcdDebian, (*lateRig).silenceAt},
		"reset":         {servers.Etcd, reset},
		"restart":       {servers.Etcd, restart},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := lateRigOn(t, servers.Run(t, test.kind, servers.EtcdSynced))
			grant := want.Acquire(t, r.store, request("x"))
			key := string(first(t, r.raw, "x").Key)
			lost := test.lose(r, key)
			await.Until(t, "the lock is released", func() bool { return r.tryRelease(grant) })
			happens(t, lost)
			later := want.Acquire(t, r.store, request("x"))
			remove(t, r.raw, key)
			want.Renew(t, r.store, "when a release of the lock before was carried out late", later, r.kept)
		})
	}
}

// TestRepeatedReleaseThatFindsNothingIsUnreachable: the first request of a release is lost, another
// owner has the lock meanwhile, and the second request finds nothing. Release must not report that it
// gave up the lock.
func TestRepeatedReleaseThatFindsNothingIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	stale := want.Acquire(t, r.store, request("x"))
	silent := r.silenceAt(string(first(t, r.raw, "x").Key))
	released := want.Later(func() error { return r.store.Release(t.Context(), stale) })
	happens(t, silent)
	want.Break(t, r.other, stale)
	want.Acquire(t, r.other, request("x"))
	want.Error(t, "Release of a lock that was lost meanwhile", <-released, driver.ErrUnreachable)
	want.Error(t, "the next Release", r.store.Release(t.Context(), stale), driver.ErrNotHeld)
}

// TestOvertakenExpiryDeletesNoLaterLock: the deletion of an expired lock that is carried out
// late deletes no later lock of the same store.
func TestOvertakenExpiryDeletesNoLaterLock(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	// A lock expires before its lease if its owner queued with a longer TTL.
	expires := queued(request("x"))
	before := want.Acquire(t, r.other, request("x"))
	want.Held(t, r.store, expires, "another has it")
	want.Release(t, r.other, before)
	key := string(first(t, r.raw, "x").Key)
	deletion := r.silenceAt(string(append([]byte{0x0a, byte(len(key))}, key...))) // the key is its first field
	expires.TTL = 2 * time.Second
	want.Acquire(t, r.store, expires)
	happens(t, deletion)
	var second driver.Grant
	await.Until(t, "a renewal of the lease deletes the key", func() bool {
		want.Renew(t, r.store, "when another lock expired", r.kept)
		var err error
		second, err = r.store.Acquire(t.Context(), request("x"))
		return err == nil
	})
	remove(t, r.raw, key)
	want.Renew(t, r.store, "when the deletion of an expired lock was carried out late", second)
}

// TestStaleCallsLeaveALaterLockAlone: the keys of a lease are used again. A late or repeated
// release or renewal of an earlier lock, through any store, leaves the later lock alone.
func TestStaleCallsLeaveALaterLockAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		stale := want.Acquire(t, r.store, request("x"))
		key := string(first(t, r.raw, "x").Key)
		want.Release(t, r.other, stale) // a lock may be released through any store
		await.Until(t, "its own store has noticed", func() bool {
			return errors.Is(want.RenewError(t, r.store, stale), driver.ErrNotHeld)
		})
		again := request("x")
		again.Owner = stale.Owner
		for _, req := range []driver.Request{request("x"), again} {
			later := want.Acquire(t, r.store, req)
			if now := string(first(t, r.raw, "x").Key); now != key {
				t.Fatalf("the key is %q, not %q again, this test shows nothing", now, key)
			}
			for range 2 {
				for which, store := range map[string]driver.Store{"its own store": r.store, "another store": r.other} {
					want.Error(t, "a stale Release through "+which, store.Release(t.Context(), stale), driver.ErrNotHeld)
					want.Error(t, "a stale Renew through "+which, want.RenewError(t, store, stale), driver.ErrNotHeld)
				}
			}
			want.Renew(t, r.store, "after stale calls", later)
			want.Held(t, r.other, request("x"), "stale calls change nothing")
			want.Release(t, r.store, later)
		}
	})
}

// TestOvertakenBreakBreaksNothing: a break that is overtaken by a release and the next
// acquisition with the same key breaks nothing.
func TestOvertakenBreakBreaksNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		stale := want.Acquire(t, r.other, request("x"))
		key := string(first(t, r.raw, "x").Key)
		var later driver.Grant
		overtaken := r.proxy.OnRequest(contains(key), func(*proxy.Conn) { // the request before it has only the name
			want.Release(t, r.other, stale)
			later = want.Acquire(t, r.other, request("x"))
		})
		err := r.store.Break(t.Context(), "x", stale.Token)
		want.Error(t, "Break of a lock that was released meanwhile", err, driver.ErrNotHeld)
		happens(t, overtaken)
		if now := string(first(t, r.raw, "x").Key); now != key {
			t.Fatalf("the key is %q, not %q again, this test shows nothing", now, key)
		}
		want.Renew(t, r.other, "after a break of the lock before it", later)
	})
}

// TestUnansweredBreakIsNoCancellation: a break whose answer was lost finds nothing when it is repeated,
// and cannot know what ended the lock. Its error says so, and not that the context ended, which the
// caller would take for its own.
func TestUnansweredBreakIsNoCancellation(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	grant := want.Acquire(t, r.other, request("x"))
	lost := r.proxy.LoseReply(contains(string(first(t, r.raw, "x").Key)), false)
	err := r.store.Break(t.Context(), "x", grant.Token)
	happens(t, lost)
	if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Break without an answer: %v; want ErrUnreachable, and no end of a context", err)
	}
}

// TestWatchedPlaceOutlivesItsTTL: a waiter keeps its place for longer than its TTL.
func TestWatchedPlaceOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	want.Acquire(t, r.other, request("x"))
	req := request("x")
	req.TTL, req.Queue = 2*time.Second, true
	want.Watch(t, r.store, req)
	want.Held(t, r.store, req, "another has it")
	place, start := last(t, r.raw, "x"), time.Now()
	await.Until(t, "the lease would have ended", func() bool { return time.Since(start) > 2*req.TTL })
	if now := last(t, r.raw, "x"); now.CreateRevision != place.CreateRevision {
		t.Errorf("the place is %v; want %v", now, place)
	}
}

// TestAbandonedAttemptIsUndoneAfterAPause: an attempt that was abandoned while the server was
// paused is undone when the server answers again, also if the caller did not wait for that.
func TestAbandonedAttemptIsUndoneAfterAPause(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	want.OK(t, r.server.Pause())
	abandoned := request("abandoned")
	ctx, cancel := timeout(100 * time.Millisecond)
	defer cancel()
	want.Unknown(t, "a paused server granted a lock", want.Err(r.store.Acquire(ctx, abandoned)))
	ctx, cancel = timeout(2 * time.Second)
	defer cancel()
	want.Unknown(t, "a paused server released a lock", r.store.Release(ctx, want.Undo(abandoned)))
	want.OK(t, r.server.Resume())
	want.Renew(t, r.store, "after a pause", r.kept) // what was sent before was carried out
	await.Until(t, "the lock is free", func() bool {
		grant, err := r.other.Acquire(t.Context(), request("abandoned"))
		return err == nil && r.other.Release(t.Context(), grant) == nil
	})
}

// timeout is for calls that may not be answered.
func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// TestLateWriteDoesNotReviveABrokenLock: a broken lock is neither released nor renewed because
// one of its attempts was carried out late.
func TestLateWriteDoesNotReviveABrokenLock(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(testing.TB, driver.Store, driver.Grant) error{
		"Release": func(t testing.TB, store driver.Store, grant driver.Grant) error {
			return store.Release(t.Context(), grant)
		},
		"Renew": func(t testing.TB, store driver.Store, grant driver.Grant) error {
			return want.RenewError(t, store, grant)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			lost := r.proxy.LoseReply(contains("x/"), true)
			req := request("x")
			want.Unknown(t, "granted without an answer", want.Err(r.store.Acquire(t.Context(), req)))
			happens(t, lost)
			var grant driver.Grant
			await.Until(t, "the lock is granted", func() bool {
				var err error
				grant, err = r.store.Acquire(t.Context(), req)
				return err == nil
			})
			key := first(t, r.raw, "x")
			want.Break(t, r.other, grant)
			rewrite(t, r.raw, key)
			want.Error(t, what+" of a broken lock", call(t, r.store, grant), driver.ErrNotHeld)
		})
	}
}

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	r.proxy.Hold()
	t.Cleanup(r.proxy.Deliver) // so that Close reaches the server
	faults.NoAnswer(t, r.store, r.kept, request("abandoned"), "an earlier call has not ended")
}
