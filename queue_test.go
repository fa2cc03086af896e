package dlock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// counting counts the calls that reach a store.
type counting struct {
	*memlock.Store
	acquires, renews, watches atomic.Int64
	contenders                sync.Map // owners seen
}

func (s *counting) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.acquires.Add(1)
	s.contenders.Store(req.Owner, true)
	return s.Store.Acquire(ctx, req)
}

func (s *counting) Renew(ctx context.Context, grants []driver.Grant) []error {
	s.renews.Add(1)
	return s.Store.Renew(ctx, grants)
}

func (s *counting) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	s.watches.Add(1)
	return s.Store.Watch(ctx, req, wake)
}

func (s *counting) owners() int {
	n := 0
	s.contenders.Range(func(any, any) bool { n++; return true })
	return n
}

// 10,000 goroutines that wait for one name cost the store as much as one.
func TestOneContenderPerProcess(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &counting{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		const waiters = 10_000
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range waiters {
			wg.Go(func() {
				lease, err := c.Lock(ctx, "x")
				if err == nil {
					mustUnlock(t, lease)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := (after.HeapAlloc - before.HeapAlloc) / waiters; each > 4096 {
			t.Errorf("a waiter costs %d bytes of heap", each)
		}
		time.Sleep(10 * time.Minute)
		if n := store.owners(); n != 1 {
			t.Errorf("the store has seen %d contenders", n)
		}
		if n := store.watches.Load(); n != 1 {
			t.Errorf("the store has seen %d watches", n)
		}
		if n := store.acquires.Load(); n > 90 { // three polls in a TTL
			t.Errorf("the store was asked %d times in ten minutes", n)
		}
		mustUnlock(t, lease)
		cancel()
		wg.Wait()
	})
}

func TestLocalWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				lease := mustLock(t, c, t.Context(), "x")
				order = append(order, i)
				mustUnlock(t, lease)
			})
			synctest.Wait()
		}
		mustUnlock(t, lease)
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// Fair waiters of several processes are served in the order of arrival. Waiters that give up
// or die are skipped.
func TestFairOrderAcrossClients(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		var clients []*dlock.Client
		for range 3 {
			c := dlock.New(store, nil)
			defer c.Close()
			clients = append(clients, c)
		}
		lease := mustLock(t, clients[0], t.Context(), "x", dlock.WithFair())
		var order []int
		var wg sync.WaitGroup
		givenUp, giveUp := context.WithCancel(t.Context())
		for i := range 30 {
			ctx := t.Context()
			if i%5 == 3 {
				ctx = givenUp
			}
			wg.Go(func() {
				lease, err := clients[i%3].Lock(ctx, "x", dlock.WithFair())
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				order = append(order, i)
				time.Sleep(time.Second)
				mustUnlock(t, lease)
			})
			synctest.Wait()
		}
		dead := driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: 30 * time.Second, Fair: true, Queue: true}
		if _, err := store.Acquire(t.Context(), dead); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		wg.Go(func() { // behind a waiter that never comes back
			mustUnlock(t, mustLock(t, clients[0], t.Context(), "x", dlock.WithFair()))
			order = append(order, 30)
		})
		synctest.Wait()
		if _, err := clients[1].TryLock(t.Context(), "x", dlock.WithFair()); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a fair TryLock skipped the queue: %v", err)
		}
		giveUp()
		time.Sleep(time.Minute) // longer than a place lasts: the waiters keep theirs
		mustUnlock(t, lease)
		wg.Wait()
		var want []int
		for i := range 31 {
			if i%5 != 3 {
				want = append(want, i)
			}
		}
		if !slices.Equal(order, want) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// queueing is a store in which every waiter has a place.
type queueing struct{ *memlock.Store }

func (s queueing) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Queues = true
	return traits
}

func (s queueing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Fair = true
	return s.Store.Acquire(ctx, req)
}

func (s queueing) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	req.Fair = true
	return s.Store.Watch(ctx, req, wake)
}

// A waiter keeps the place of its first attempt and leaves it when it gives up. TryLock takes
// no place.
func TestWaitersKeepAPlaceInAQueueingStore(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := queueing{inner}
		holder, c := dlock.New(store, nil), dlock.New(store, nil)
		defer holder.Close()
		defer c.Close()
		places := func() int {
			info, _, err := holder.Find(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			return info.Waiters
		}
		lease := mustLock(t, holder, t.Context(), "x")
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Fatalf("TryLock: %v", err)
		}
		if n := places(); n != 0 {
			t.Errorf("TryLock left %d places", n)
		}
		for what, opts := range map[string][]dlock.Option{"a limit": {dlock.WithWait(time.Second)}, "a context": nil} {
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() { _, err := c.Lock(ctx, "x", opts...); gone <- err }()
			synctest.Wait()
			if n := places(); n != 1 {
				t.Errorf("a waiter with %s has %d places", what, n)
			}
			if opts == nil {
				cancel()
			}
			if err := <-gone; !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("a waiter with %s: %v", what, err)
			}
			cancel()
			synctest.Wait()
			if n := places(); n != 0 {
				t.Errorf("a waiter that gave up by %s left %d places", what, n)
			}
		}
		mustUnlock(t, lease)
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}
