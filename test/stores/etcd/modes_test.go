package etcd

import (
	"context"
	"errors"
	"sync/atomic"
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

// isShared checks that the lock admits shared holders, or does not.
func (r *lateRig) isShared(name string, shared bool, when string) {
	r.t.Helper()
	if !shared {
		want.Held(r.t, r.other, requestIn(sharedMode, name), when)
		return
	}
	want.Release(r.t, r.other, want.Acquire(r.t, r.other, requestIn(sharedMode, name)))
}

// TestLateAttemptDoesNotUndoADowngrade: an exclusive attempt is carried out when the owner already has
// the lock, by a repetition of the attempt, and has downgraded it. The lock stays shared.
func TestLateAttemptDoesNotUndoADowngrade(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		id := first(t, r.raw, "kept").Lease
		late := r.proxy.OnRequest(contains("late/"), func(*proxy.Conn) {
			if _, err := r.raw.Put(t.Context(), "late/"+hex(id), `{"dlock":"shared","host":"h"}`, clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
				t.Error(err)
			}
		})
		grant := want.Acquire(t, r.store, queued(request("late")))
		happens(t, late)
		r.isShared("late", true, "after a late attempt")
		want.Renew(t, r.store, "after a late attempt", grant)
	})
}

// TestLateDowngradeLeavesALaterLockAlone: a downgrade that is carried out after the lock was released
// and taken again with the same key changes nothing.
func TestLateDowngradeLeavesALaterLockAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		grant := want.Acquire(t, r.store, request("x"))
		key := first(t, r.raw, "x")
		late := r.proxy.OnRequest(contains(string(key.Key)), func(*proxy.Conn) {
			want.Release(t, r.other, grant)
			rewrite(t, r.raw, key)
		})
		want.Error(t, "Downgrade of a lock that was released meanwhile", r.store.Downgrade(t.Context(), grant), driver.ErrNotHeld)
		happens(t, late)
		r.isShared("x", false, "after a late downgrade of the lock before")
	})
}

// TestDowngradeIsRepeated: a downgrade over a connection that stopped answering is repeated over
// another one, and may be called again.
func TestDowngradeIsRepeated(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	grant := want.Acquire(t, r.store, request("x"))
	silent := r.silenceAt(string(first(t, r.raw, "x").Key))
	for range 2 {
		want.OK(t, r.store.Downgrade(t.Context(), grant))
		happens(t, silent)
		r.isShared("x", true, "after a downgrade")
	}
	want.Renew(t, r.store, "after a downgrade", grant)
	want.Release(t, r.store, grant)
	want.Error(t, "Downgrade after Release", r.store.Downgrade(t.Context(), grant), driver.ErrNotHeld)
}

// TestUnansweredShareIsFound: the answer to a shared attempt is lost, an exclusive waiter queues behind
// the share, and the attempt is repeated. It finds its own key, which is before the waiter's.
func TestUnansweredShareIsFound(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]driver.Mode{"shared": sharedMode, "permit": two} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			beside := want.Acquire(t, r.other, requestIn(mode, "x")) // so that the key is not the first
			req := requestIn(mode, "x")
			req.Queue = true
			asked := r.proxy.OnRequest(contains("x/"), func(c *proxy.Conn) { c.LoseReplies() })
			attempted := make(chan struct{})
			go func() {
				defer close(attempted)
				_, _ = r.store.Acquire(t.Context(), req) // fails, unless it was repeated over another connection
			}()
			happens(t, asked)
			await.Until(t, "the attempt was carried out", func() bool { return keys(t, r.raw, "x") == 2 })
			r.proxy.Reset()
			happens(t, attempted)
			m := newMutex(t, r.server, "x")
			served := make(chan struct{})
			go func() { defer close(served); m.lock(t) }()
			await.Until(t, "the other program waits", func() bool { return waiters(r.other, "x") == 1 })
			req.Queue = false
			var grant driver.Grant
			await.Until(t, "the attempt finds its key", func() bool {
				var err error
				if grant, err = r.store.Acquire(t.Context(), req); errors.Is(err, driver.ErrHeld) {
					t.Fatalf("a holder that asked again was refused: %v", err)
				}
				return err == nil
			})
			want.Release(t, r.store, grant)
			want.Release(t, r.other, beside)
			happens(t, served)
			m.unlock(t)
		})
	}
}

// TestDeletedSharedPlaceIsNotTheLock: the place of a shared waiter is deleted, which its watch does not
// report. When the exclusive holder is gone, the waiter does not take the lock for granted.
func TestDeletedSharedPlaceIsNotTheLock(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	writer := want.Acquire(t, r.other, request("x"))
	req := requestIn(sharedMode, "x")
	woken := want.Watch(t, r.store, req)
	want.Held(t, r.store, req, "a writer has it")
	want.Held(t, r.store, req, "a writer has it")
	remove(t, r.raw, string(last(t, r.raw, "x").Key))
	want.Release(t, r.other, writer)
	happens(t, woken)
	grant := want.Acquire(t, r.store, req)
	if key := first(t, r.raw, "x"); uint64(key.CreateRevision) != tokenstep.Number(grant.Token) {
		t.Errorf("granted with token %d, and the key is %v", grant.Token, key)
	}
}

// TestDowngradeComparesTheToken: the lock was broken, and its owner has taken it again. A downgrade of
// the first grant changes nothing.
func TestDowngradeComparesTheToken(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	req := request("x")
	broken := want.Acquire(t, r.store, req)
	want.Break(t, r.other, broken)
	again := want.Acquire(t, r.store, req)
	want.Error(t, "Downgrade of a grant that was broken", r.store.Downgrade(t.Context(), broken), driver.ErrNotHeld)
	r.isShared("x", false, "after a downgrade of the grant before")
	want.OK(t, r.store.Downgrade(t.Context(), again))
	r.isShared("x", true, "after a downgrade")
}

// TestTryOfABusySemaphoreEnds: a permit is free, and before each request of an attempt another holder
// comes and one goes. The attempt is granted the permit all the same. If the last permit is taken at
// last, the attempt is refused, and leaves no place.
func TestTryOfABusySemaphoreEnds(t *testing.T) {
	t.Parallel()
	for outcome, free := range map[string]int64{ // how many requests find a free permit
		"granted": 1000,
		"refused": 3,
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			held := want.Acquire(t, r.other, requestIn(two, "x"))
			var requests atomic.Int64
			var compete func(*proxy.Conn)
			compete = func(*proxy.Conn) {
				next := want.Acquire(t, r.other, requestIn(two, "x"))
				if requests.Add(1) > free {
					return
				}
				want.Release(t, r.other, held)
				held = next
				r.proxy.OnRequest(contains("x/"), compete)
			}
			r.proxy.OnRequest(contains("x/"), compete)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := r.store.Acquire(ctx, requestIn(two, "x"))
			if outcome == "granted" && err != nil || outcome == "refused" && !errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire: %v; want that it is %s", err, outcome)
			}
			if n := requests.Load(); n != 4 {
				t.Errorf("%d requests; want that the fourth decides", n)
			}
			if n := keys(t, r.raw, "x"); n != 2 {
				t.Errorf("%d keys; want those of two holders", n)
			}
		})
	}
}

// TestWaiterOutlivesAMismatch: the holder releases while a request in another mode, which was refused,
// has not deleted its key yet. The waiter behind that key goes on. If the key stays, it has the lock,
// and the waiter gets ErrMode.
func TestWaiterOutlivesAMismatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	holder, store := newStore(t, server.URL()), newStore(t, server.URL())
	lease := want.Value(raw.Grant(t.Context(), 60))(t)
	one := driver.Mode{Limit: 1}
	for name, c := range map[string]struct {
		holder, waiter driver.Mode
		mark           string // of the other key
	}{
		"lock":      {driver.Mode{}, driver.Mode{}, "~limit2-"},
		"reader":    {driver.Mode{}, sharedMode, "~limit2-"},
		"semaphore": {one, one, ""},
	} {
		for _, stays := range []bool{false, true} {
			grant := want.Acquire(t, holder, requestIn(c.holder, name))
			key := name + "/" + c.mark + hex(int64(lease.ID))
			want.OK(t, want.Err(raw.Put(t.Context(), key, "", clientv3.WithLease(lease.ID))))
			req := queued(requestIn(c.waiter, name))
			woken := want.Watch(t, store, req)
			want.Held(t, store, req, "another has it")
			select {
			case <-woken: // before the release
			default:
			}
			want.Release(t, holder, grant)
			happens(t, woken)
			want.Held(t, store, req, "the request in another mode may withdraw")
			if !stays {
				want.OK(t, want.Err(raw.Delete(t.Context(), key)))
				want.Release(t, store, want.Acquire(t, store, req))
				continue
			}
			err := error(driver.ErrHeld)
			for errors.Is(err, driver.ErrHeld) {
				happens(t, woken)
				_, err = store.Acquire(t.Context(), req)
			}
			want.Error(t, name+" behind a holder in another mode", err, driver.ErrMode)
		}
	}
}

// TestCrowdOutlivesAMismatch: waiters that share what they know of the queue behind a request in another
// mode go on when it has withdrawn, also those that are not served at once.
func TestCrowdOutlivesAMismatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	observer := newStore(t, server.URL())
	held := lockAnyhow(t, newClient(t, server.URL(), 20*time.Second), "popular")
	id := want.Value(raw.Grant(t.Context(), 60))(t).ID
	key := "popular/~limit2-" + hex(int64(id))
	want.OK(t, want.Err(raw.Put(t.Context(), key, "", clientv3.WithLease(id))))
	const callers = 100
	got := want.Crowd(t, newClient(t, server.URL(), 20*time.Second), "popular", callers)
	await.Until(t, "all callers have places", func() bool { return waiters(observer, "popular") == callers+1 })
	want.Unlock(t, held)
	<-time.After(300 * time.Millisecond) // in which they find the other mode
	want.OK(t, want.Err(raw.Delete(t.Context(), key)))
	lease := await.Event(t, got, "the first turn")
	<-time.After(1500 * time.Millisecond) // a key in another mode that is still there has the lock
	want.Unlock(t, lease)
	want.ServedAll(t, got, callers-1)
}

// TestPlaceOfAMismatchIsGivenUp: an exclusive waiter of a semaphore is refused for good, and leaves no
// place behind, although its first request took one.
func TestPlaceOfAMismatchIsGivenUp(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	a, b := newStore(t, server.URL()), newStore(t, server.URL())
	want.Acquire(t, a, requestIn(two, "x"))
	for mode, what := range map[driver.Mode]string{{}: "exclusive", sharedMode: "shared", {Limit: 3}: "limit 3"} {
		_, err := b.Acquire(t.Context(), queued(requestIn(mode, "x")))
		mismatch, ok := errors.AsType[*driver.ModeError](err)
		if !ok || mismatch.Mode != two {
			t.Errorf("%s request of a semaphore: %v; want a ModeError with limit 2", what, err)
		}
	}
	if n := keys(t, raw, "x"); n != 1 {
		t.Errorf("%d keys; want that of the holder", n)
	}
}
