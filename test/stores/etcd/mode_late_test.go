package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// isShared checks that the lock admits shared holders, or does not.
func (r *lateRig) isShared(name string, want bool, when string) {
	r.t.Helper()
	grant, err := r.other.Acquire(r.t.Context(), requestIn(sharedMode, name))
	switch {
	case want && err != nil:
		r.t.Errorf("a shared request %s: %v", when, err)
	case !want && !errors.Is(err, driver.ErrHeld):
		r.t.Errorf("a shared request %s: %v; want ErrHeld", when, err)
	case err == nil:
		r.release(r.other, grant)
	}
}

func (r *lateRig) downgrade(grant driver.Grant) error {
	return r.store.(driver.Downgrader).Downgrade(r.t.Context(), grant)
}

// TestLateAttemptDoesNotUndoADowngrade: an exclusive attempt is carried out when the owner already has
// the lock, by a repetition of the attempt, and has downgraded it. The lock stays shared.
func TestLateAttemptDoesNotUndoADowngrade(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		t.Helper()
		kept, err := r.raw.Get(t.Context(), r.keyOf("kept"))
		if err != nil || len(kept.Kvs) != 1 {
			t.Fatalf("%v, %v", kept, err)
		}
		id := kept.Kvs[0].Lease
		late := r.proxy.OnRequest(contains("late/"), func(*proxy.Conn) {
			if _, err := r.raw.Put(t.Context(), "late/"+hex(id), `{"dlock":"shared","host":"h"}`, clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
				t.Error(err)
			}
		})
		req := request("late")
		req.Queue, req.Fair = true, true
		grant := r.acquire(r.store, req)
		happens(t, late)
		r.isShared("late", true, "after a late attempt")
		r.stillHeld(r.store, grant, "after a late attempt")
	})
}

// TestLateDowngradeLeavesALaterLockAlone: a downgrade that is carried out after the lock was released
// and taken again with the same key changes nothing.
func TestLateDowngradeLeavesALaterLockAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		t.Helper()
		first := r.acquire(r.store, request("x"))
		there, err := r.raw.Get(t.Context(), r.keyOf("x"))
		if err != nil || len(there.Kvs) != 1 {
			t.Fatalf("%v, %v", there, err)
		}
		kv := there.Kvs[0]
		late := r.proxy.OnRequest(contains(string(kv.Key)), func(*proxy.Conn) {
			r.release(r.other, first)
			if _, err := r.raw.Put(t.Context(), string(kv.Key), "", clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
				t.Error(err)
			}
		})
		if err := r.downgrade(first); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Downgrade of a lock that was released meanwhile: %v; want ErrNotHeld", err)
		}
		happens(t, late)
		r.isShared("x", false, "after a late downgrade of the lock before")
	})
}

// TestDowngradeIsRepeated: a downgrade over a connection that stopped answering is repeated over
// another one, and may be called again.
func TestDowngradeIsRepeated(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	grant := r.acquire(r.store, request("x"))
	silent := r.silenceAt(r.keyOf("x"))
	for range 2 {
		if err := r.downgrade(grant); err != nil {
			t.Errorf("Downgrade: %v", err)
		}
		happens(t, silent)
		r.isShared("x", true, "after a downgrade")
	}
	r.stillHeld(r.store, grant, "after a downgrade")
	r.release(r.store, grant)
	if err := r.downgrade(grant); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Downgrade after Release: %v; want ErrNotHeld", err)
	}
}

// TestUnansweredShareIsFound: the answer to a shared attempt is lost, an exclusive waiter queues behind
// the share, and the attempt is repeated. It finds its own key, which is before the waiter's.
func TestUnansweredShareIsFound(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]driver.Mode{"shared": sharedMode, "permit": {Limit: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Etcd)
			p := proxy.Run(t, server.Addr())
			store, other := newStore(t, "etcd://"+p.Addr()), newStore(t, server.URL())
			beside, err := other.Acquire(t.Context(), requestIn(mode, "x")) // so that the key is not the first
			if err != nil {
				t.Fatal(err)
			}
			req := requestIn(mode, "x")
			req.Queue = true
			asked := p.OnRequest(contains("x/"), func(c *proxy.Conn) { c.LoseReplies() })
			attempted := make(chan struct{})
			go func() {
				defer close(attempted)
				_, _ = store.Acquire(t.Context(), req) // fails, unless it was repeated over another connection
			}()
			happens(t, asked)
			eventually(t, "the attempt was carried out", func() bool { return holderCount(t, other, "x") == 2 })
			p.Reset()
			happens(t, attempted)
			m := newMutex(t, server, "x")
			served := make(chan struct{})
			go func() { defer close(served); m.lock(t) }()
			eventually(t, "the other program waits", func() bool { return waiters(other, "x") == 1 })
			req.Queue = false
			var grant driver.Grant
			eventually(t, "the attempt finds its key", func() (ok bool) {
				grant, err = store.Acquire(t.Context(), req)
				if errors.Is(err, driver.ErrHeld) {
					t.Fatalf("a holder that asked again was refused: %v", err)
				}
				return err == nil
			})
			for store, grant := range map[driver.Store]driver.Grant{store: grant, other: beside} {
				if err := store.Release(t.Context(), grant); err != nil {
					t.Error(err)
				}
			}
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
	writer := r.acquire(r.other, request("x"))
	req := requestIn(sharedMode, "x")
	woken := make(chan struct{}, 100)
	stop, err := r.store.(driver.Watcher).Watch(t.Context(), req, func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		if _, err := r.store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire beside an exclusive holder: %v", err)
		}
	}
	if deleted, err := r.raw.Delete(t.Context(), "x/~shared-", clientv3.WithPrefix()); err != nil || deleted.Deleted != 1 {
		t.Fatalf("%v, %v", deleted, err)
	}
	r.release(r.other, writer)
	happens(t, woken)
	grant := r.acquire(r.store, req)
	there, err := r.raw.Get(t.Context(), "x/", clientv3.WithFirstCreate()...)
	if err != nil || len(there.Kvs) != 1 || uint64(there.Kvs[0].CreateRevision) != tokenstep.Number(grant.Token) {
		t.Errorf("granted with token %d, and the key is %v, %v", grant.Token, there, err)
	}
}

// holderCount returns how many holders List reports for a name.
func holderCount(t testing.TB, store driver.Store, name string) (n int) {
	t.Helper()
	for info, err := range store.(driver.Lister).List(t.Context(), name) {
		if err == nil && info.Name == name {
			n++
		}
	}
	return n
}

// TestDowngradeComparesTheToken: the lock was broken, and its owner has taken it again. A downgrade of
// the first grant changes nothing.
func TestDowngradeComparesTheToken(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	req := request("x")
	first := r.acquire(r.store, req)
	if err := r.other.(driver.Breaker).Break(t.Context(), "x", first.Token); err != nil {
		t.Fatal(err)
	}
	second := r.acquire(r.store, req)
	if err := r.downgrade(first); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Downgrade of a grant that was broken: %v; want ErrNotHeld", err)
	}
	r.isShared("x", false, "after a downgrade of the grant before")
	if err := r.downgrade(second); err != nil {
		t.Errorf("Downgrade: %v", err)
	}
	r.isShared("x", true, "after a downgrade")
}

// TestTryOfABusySemaphoreEnds: a permit is free, and before each request of an attempt another holder
// comes and one goes. The attempt is granted the permit all the same. If the last permit is taken at
// last, the attempt is refused, and leaves no place.
func TestTryOfABusySemaphoreEnds(t *testing.T) {
	t.Parallel()
	two := driver.Mode{Limit: 2}
	for outcome, free := range map[string]int64{ // how many requests find a free permit
		"granted": 1000,
		"refused": 3,
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			r := newLateRig(t)
			held := r.acquire(r.other, requestIn(two, "x"))
			var requests atomic.Int64
			var compete func(*proxy.Conn)
			compete = func(*proxy.Conn) {
				next := r.acquire(r.other, requestIn(two, "x"))
				if requests.Add(1) > free {
					return
				}
				r.release(r.other, held)
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
			keys, err := r.raw.Get(t.Context(), "x/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || keys.Count != 2 {
				t.Errorf("%v, %v; want the keys of two holders", keys, err)
			}
		})
	}
}
