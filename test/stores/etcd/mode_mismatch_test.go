package etcd

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestWaiterOutlivesAMismatch: the holder releases while a request in another mode, which was refused,
// has not deleted its key yet. The waiter behind that key goes on. If the key stays, it has the lock,
// and the waiter gets ErrMode.
func TestWaiterOutlivesAMismatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	holder, store := newStore(t, server.URL()), newStore(t, server.URL())
	lease, err := raw.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	wantHeld := func(req driver.Request) {
		t.Helper()
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire(%q): %v; want ErrHeld", req.Name, err)
		}
	}
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
			grant, err := holder.Acquire(t.Context(), requestIn(c.holder, name))
			if err != nil {
				t.Fatal(err)
			}
			key := name + "/" + c.mark + hex(int64(lease.ID))
			if _, err := raw.Put(t.Context(), key, "", clientv3.WithLease(lease.ID)); err != nil {
				t.Fatal(err)
			}
			req := requestIn(c.waiter, name)
			req.Queue, req.Fair = true, true
			woken := make(chan struct{}, 1)
			stop, err := store.(driver.Watcher).Watch(t.Context(), req, func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			wantHeld(req)
			select {
			case <-woken: // before the release
			default:
			}
			if err := holder.Release(t.Context(), grant); err != nil {
				t.Fatal(err)
			}
			happens(t, woken)
			wantHeld(req)
			if !stays {
				if _, err := raw.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				grant, err := store.Acquire(t.Context(), req)
				if err == nil {
					err = store.Release(t.Context(), grant)
				}
				if err != nil {
					t.Errorf("%s: a waiter behind a request that withdrew: %v", name, err)
				}
				continue
			}
			for err = driver.ErrHeld; errors.Is(err, driver.ErrHeld); {
				happens(t, woken)
				_, err = store.Acquire(t.Context(), req)
			}
			if !errors.Is(err, driver.ErrMode) {
				t.Errorf("%s: behind a holder in another mode: %v; want ErrMode", name, err)
			}
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
	crowd := newClient(t, server.URL(), 20*time.Second)
	held := lockAnyhow(t, newClient(t, server.URL(), 20*time.Second), "popular")
	lease, err := raw.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	key := "popular/~limit2-" + hex(int64(lease.ID))
	if _, err := raw.Put(t.Context(), key, "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	const callers = 100
	var all sync.WaitGroup
	errs := make([]error, callers)
	last := make(chan *dlock.Lease, callers)
	for i := range callers {
		all.Go(func() {
			lease, err := crowd.Lock(t.Context(), "popular", dlock.WithFair())
			if errs[i] = err; err == nil {
				last <- lease
			}
		})
	}
	eventually(t, "all callers have places", func() bool { return waiters(observer, "popular") == callers+1 })
	unlock(t, held)
	<-time.After(300 * time.Millisecond) // in which they find the other mode
	if _, err := raw.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	first := <-last
	<-time.After(1500 * time.Millisecond) // a key in another mode that is still there has the lock
	for range callers - 1 {
		unlock(t, first)
		select {
		case first = <-last:
		case <-time.After(limit):
			t.Fatal("no further caller has the lock")
		}
	}
	unlock(t, first)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
