package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// lockAndUnlock holds "x" for a millisecond again and again, as a process of its own, until ctx ends.
func lockAndUnlock(t *testing.T, ctx context.Context, wg *sync.WaitGroup, store driver.Store, opts ...dlock.Option) {
	c := dlock.New(store, nil)
	wg.Go(func() {
		defer c.Close()
		for {
			lease, err := c.Lock(ctx, "x", opts...)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			time.Sleep(time.Millisecond)
			mustUnlock(t, lease)
		}
	})
}

// TestNoKindOfWaiterStarves: a caller that comes while three others of any kind have the lock in turn, or
// that waited before they came, is served again and again.
func TestNoKindOfWaiterStarves(t *testing.T) {
	fair, shared := dlock.WithFair(), dlock.WithShared()
	locks := map[string][]dlock.Option{
		"exclusive": nil, "fair exclusive": {fair}, "shared": {shared}, "fair shared": {fair, shared},
	}
	permits := map[string][]dlock.Option{
		"permit": {dlock.WithLimit(1)}, "fair permit": {dlock.WithLimit(1), fair},
	}
	for _, kinds := range []map[string][]dlock.Option{locks, permits} {
		for busy, busyOpts := range kinds {
			for waiter, opts := range kinds {
				for _, waitsBefore := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s beside %s, first %v", waiter, busy, waitsBefore), func(t *testing.T) {
						bubble(t, func(t *testing.T, inner *memlock.Store) {
							var store driver.Store = inner
							if strings.HasPrefix(busy, "fair") && !waitsBefore {
								store = notifiesFair{inner}
							}
							testNotStarved(t, store, opts, busyOpts, waitsBefore)
						})
					})
				}
			}
		}
	}
}

// notifiesFair does not notify waiters that are not fair, as Redis does not while fair ones wait.
type notifiesFair struct{ *memlock.Store }

func (s notifiesFair) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	if !req.Fair {
		wake = func() {}
	}
	return s.Store.Watch(ctx, req, wake)
}

func testNotStarved(t *testing.T, store driver.Store, opts, busyOpts []dlock.Option, waitsBefore bool) {
	const grants, limit = 10, 5 * time.Second // of virtual time; a waiter that is not notified polls after 10
	c := dlock.New(store, nil)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var busy, waiter sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	wait := func() {
		for i := range grants {
			lease, err := c.Lock(t.Context(), "x", append(opts[:len(opts):len(opts)], dlock.WithWait(limit))...)
			if err != nil {
				t.Errorf("after %d grants: %v", i, err)
				return
			}
			mustUnlock(t, lease)
		}
	}
	begin := func() {
		for range 3 { // so that one of them always waits
			lockAndUnlock(t, ctx, &busy, store, busyOpts...)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !waitsBefore {
		begin()
		wait()
		return
	}
	lease := mustLock(t, c, t.Context(), "x", busyOpts...)
	waiter.Go(wait)
	time.Sleep(time.Millisecond)
	begin()
	mustUnlock(t, lease)
	waiter.Wait()
}

// TestLockAllQueuesBehindFairWaiters: a LockAll that takes its names in one step has no place, so it
// takes them one after the other, with a place for each.
func TestLockAllQueuesBehindFairWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := notifiesFair{inner}
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		defer busy.Wait()
		defer cancel()
		for range 3 { // so that one of them always waits
			lockAndUnlock(t, ctx, &busy, store, dlock.WithFair())
		}
		time.Sleep(100 * time.Millisecond)
		for i := range 10 {
			leases, err := c.LockAll(t.Context(), []string{"a", "x"}, dlock.WithWait(time.Second))
			if err != nil {
				t.Fatalf("after %d grants: %v", i, err)
			}
			if err := leases.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLockAllDoesNotStarveBesideItsProcess: a LockAll that meets another holder whenever callers of its own
// process let it ask for the name that fair callers want queues all the same.
func TestLockAllDoesNotStarveBesideItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &slowStore{remote: remote{inner}, delay: time.Millisecond}
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		defer busy.Wait()
		defer cancel()
		both := func(c *dlock.Client) error {
			leases, err := c.LockAll(ctx, []string{"a", "x"}, dlock.WithWait(time.Second))
			if err == nil {
				time.Sleep(time.Millisecond)
				err = leases.Unlock(context.Background())
			}
			return err
		}
		again := func(f func() error) {
			busy.Go(func() {
				for ctx.Err() == nil {
					if err := f(); err != nil && ctx.Err() == nil {
						t.Error(err)
						cancel()
					}
				}
			})
		}
		lockAndUnlock(t, ctx, &busy, store, dlock.WithFair())
		lockAndUnlock(t, ctx, &busy, store)
		again(func() error { return both(other) })
		for range 2 {
			again(func() error {
				return c.Do(ctx, "x", func(context.Context) error { time.Sleep(time.Millisecond); return nil })
			})
		}
		time.Sleep(100 * time.Millisecond)
		for i := range 100 {
			if err := both(c); err != nil {
				t.Fatalf("after %d grants: %v", i, err)
			}
		}
	})
}

// TestProcessLeavesTheQueue: when no fair caller waits any more, the callers of a
// process hand over and ask the store as before.
func TestProcessLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &fairCounter{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x", dlock.WithFair())
		ctx, cancel := context.WithCancel(t.Context())
		fair := lockSoon(other, ctx, dlock.WithFair())
		waiter := lockSoon(c, t.Context())
		if store.fair == 0 {
			t.Error("a caller beside a fair waiter made no fair attempt")
		}
		cancel()
		<-fair
		mustUnlock(t, lease)
		mustUnlock(t, (<-waiter).lease)
		mustUnlock(t, mustLock(t, c, t.Context(), "x")) // finds out
		before := store.fair
		for range 3 {
			mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		}
		if store.fair != before {
			t.Errorf("%d fair attempts although no fair caller waits", store.fair-before)
		}
	})
}

type fairCounter struct {
	*memlock.Store
	fair int
}

func (s *fairCounter) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Fair {
		s.fair++
	}
	return s.Store.Acquire(ctx, req)
}

// TestNextCallerOfAProcessQueues: when its time slice is over, the next caller of a process does not
// pass a fair waiter that is slow to come.
func TestNextCallerOfAProcessQueues(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		fair := func() driver.Request {
			return driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: time.Minute, Fair: true, Queue: true}
		}
		holder, slow := fair(), fair()
		grant, err := store.Acquire(t.Context(), holder)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(req driver.Request) {
			t.Helper()
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Acquire: %v; want ErrHeld", err)
			}
		}
		release := func(grant driver.Grant) {
			t.Helper()
			if err := store.Release(t.Context(), grant); err != nil {
				t.Fatal(err)
			}
		}
		gone := fair()
		refused(gone)
		first := lockSoon(c, t.Context())
		_ = store.Release(t.Context(), driver.Grant{Name: "x", Owner: gone.Owner})
		refused(slow)
		second := lockSoon(c, t.Context())
		release(grant)
		got := <-first
		if got.err != nil {
			t.Fatal(got.err)
		}
		time.Sleep(time.Second) // the slice is over
		mustUnlock(t, got.lease)
		time.Sleep(time.Second)
		if grant, err = store.Acquire(t.Context(), slow); err != nil {
			t.Errorf("a caller of the process passed the fair waiter: %v", err)
		} else {
			release(grant)
		}
		if got = <-second; got.err != nil {
			t.Fatal(got.err)
		}
		mustUnlock(t, got.lease)
	})
}

// TestPlaceIsBoundedBySeconds: a dead waiter that wanted a lock for an hour holds the others up for
// seconds. A living one keeps its place for as long as it waits.
func TestPlaceIsBoundedBySeconds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, &dlock.Options{TTL: time.Hour})
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFair())
		first := lockSoon(c, t.Context(), dlock.WithFair())
		time.Sleep(time.Minute)
		dead := driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: time.Hour, Fair: true, Queue: true}
		if _, err := store.Acquire(t.Context(), dead); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		second := lockSoon(c, t.Context(), dlock.WithFair())
		mustUnlock(t, lease)
		got := <-first
		if got.err != nil {
			t.Fatal(got.err)
		}
		begin := time.Now()
		mustUnlock(t, got.lease)
		if got = <-second; got.err != nil {
			t.Fatal(got.err)
		}
		if took := time.Since(begin); took > driver.MaxPlaceTTL+time.Second || took < time.Second {
			t.Errorf("the waiter behind a dead one was served after %v; want about %v", took, driver.MaxPlaceTTL)
		}
		mustUnlock(t, got.lease)
	})
}
