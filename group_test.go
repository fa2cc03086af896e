package dlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// TestReadersThatWaitTogetherAreAdmittedTogether: shared callers of a process that wait for an
// exclusive holder of another process get the lock in one step of the store.
func TestReadersThatWaitTogetherAreAdmittedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		exclusive := mustLock(t, other, t.Context(), "x")
		const readers = 100
		got := make(chan *dlock.Lease, readers)
		for range readers {
			go func() { got <- mustLock(t, c, t.Context(), "x", dlock.WithShared()) }()
		}
		synctest.Wait()
		mustUnlock(t, exclusive)
		released := time.Now()
		for range readers {
			defer mustUnlock(t, <-got)
		}
		if n, took := store.acquires.Load(), time.Since(released); n != 1 || took > 0 {
			t.Errorf("%d shared callers took %d grants and %v; want one grant at once", readers, n, took)
		}
	})
}

// TestFirstCallerOfAGroupGivesUp: the other callers keep their place in the local queue, before an
// exclusive caller that came later.
func TestFirstCallerOfAGroupGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		holder := mustLock(t, c, t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := lockSoon(c, ctx, dlock.WithShared()), lockSoon(c, t.Context(), dlock.WithShared())
		writer := lockSoon(c, t.Context())
		cancel()
		if got := <-first; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, dlock.ErrHeld) {
			t.Errorf("the caller that was cancelled: %v; want its cause and the holder", got.err)
		}
		mustUnlock(t, holder)
		reader := <-second
		if reader.err != nil {
			t.Fatal(reader.err)
		}
		synctest.Wait()
		select {
		case <-writer:
			t.Fatal("an exclusive caller has the lock beside a shared one")
		default:
		}
		mustUnlock(t, reader.lease)
		mustUnlock(t, (<-writer).lease)
	})
}

// TestAllCallersOfAGroupGiveUp: nothing is left behind, whatever the caller that asks the store was doing.
func TestAllCallersOfAGroupGiveUp(t *testing.T) {
	for name, hold := range map[string]bool{"while it is held": true, "during the attempt": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c, other := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond}, nil), dlock.New(inner, nil)
				defer c.Close()
				defer other.Close()
				if hold {
					exclusive := mustLock(t, other, t.Context(), "x")
					defer mustUnlock(t, exclusive)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				for range 3 {
					lockSoon(c, ctx, dlock.WithShared())
				}
				time.Sleep(time.Second)
				for info := range inner.List(t.Context(), "") {
					if info.Mode.Shared || info.Waiters > 0 {
						t.Errorf("left behind: %+v", info)
					}
				}
			})
		})
	}
}

// TestCloseWhileAGroupWaits: all its callers return ErrClosed.
func TestCloseWhileAGroupWaits(t *testing.T) {
	for name, local := range map[string]bool{"in the local queue": true, "in the store": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c, other := dlock.New(store, nil), dlock.New(store, nil)
				defer other.Close()
				holder := other
				if local {
					holder = c
				}
				exclusive := mustLock(t, holder, t.Context(), "x")
				var waiting []<-chan lockResult
				for range 3 {
					waiting = append(waiting, lockSoon(c, t.Context(), dlock.WithShared()))
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				for _, waiter := range waiting {
					if got := <-waiter; !errors.Is(got.err, dlock.ErrClosed) {
						t.Errorf("a shared caller of a closed client: %v", got.err)
					}
				}
				_ = exclusive.Unlock(t.Context()) // Close may have released it
			})
		})
	}
}

// TestPanicOfOneReader: a panic in Do unlocks its own lease and no other one of the grant.
func TestPanicOfOneReader(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		other := mustLock(t, c, t.Context(), "x", dlock.WithShared())
		var ended func() error
		func() {
			defer func() { _ = recover() }()
			_ = c.Do(t.Context(), "x", func(ctx context.Context) error {
				ended = ctx.Err
				panic("on purpose")
			}, dlock.WithShared())
		}()
		if ended() == nil || other.Context().Err() != nil {
			t.Error("a panic ends the context of its own lease and of no other")
		}
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("an exclusive lock beside the other shared lease: %v", err)
		}
		mustUnlock(t, other)
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}

// TestLongWaitIsNoOutage: shared callers that waited longer than RequestTimeout for a holder that
// the process knows get the lock, although the attempt that follows is not answered at once.
func TestLongWaitIsNoOutage(t *testing.T) {
	for _, held := range []time.Duration{dlock.DefaultRequestTimeout - 500*time.Millisecond, 4 * dlock.DefaultRequestTimeout} {
		bubble(t, func(t *testing.T, inner *memlock.Store) {
			c := dlock.New(&slowStore{remote: remote{inner}, delay: time.Second}, nil)
			defer c.Close()
			exclusive := lockSoon(c, t.Context())
			first, second := lockSoon(c, t.Context(), dlock.WithShared()), lockSoon(c, t.Context(), dlock.WithShared())
			time.Sleep(held)
			mustUnlock(t, (<-exclusive).lease)
			for _, reader := range []<-chan lockResult{first, second} {
				got := <-reader
				if got.err != nil {
					t.Fatalf("after %v: %v", held, got.err)
				}
				mustUnlock(t, got.lease)
			}
		})
	}
}

// TestFirstSharedAttemptIsNoWait: WithWait limits the waiting for another holder, not the first
// attempt, and a caller that found the lock free has not waited.
func TestFirstSharedAttemptIsNoWait(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		var waited atomic.Int64
		c := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond},
			&dlock.Options{Hooks: dlock.Hooks{Waited: func(dlock.Event) { waited.Add(1) }}})
		defer c.Close()
		lease, err := c.Lock(t.Context(), "x", dlock.WithShared(), dlock.WithWait(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lease)
		if waited.Load() != 0 {
			t.Error("a caller that found the lock free has waited")
		}
	})
}

// TestRefusedSharedTryLockAsksOnce: it neither subscribes nor leaves anything to undo, and a caller
// that waits does not fail with it.
func TestRefusedSharedTryLockAsksOnce(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &counting{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		exclusive := mustLock(t, other, t.Context(), "x")
		if _, err := c.TryLock(t.Context(), "x", dlock.WithShared()); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a shared lock beside an exclusive one: %v", err)
		}
		synctest.Wait()
		if a, w := store.acquires.Load(), store.watches.Load(); a != 1 || w != 0 {
			t.Errorf("%d attempts and %d subscriptions; want one attempt", a, w)
		}
		mustUnlock(t, exclusive)

		slow := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond}, nil)
		defer slow.Close()
		exclusive = mustLock(t, other, t.Context(), "x")
		go func() { _, _ = slow.TryLock(t.Context(), "x", dlock.WithShared()) }()
		synctest.Wait()
		waiter := lockSoon(slow, t.Context(), dlock.WithShared())
		time.Sleep(time.Second)
		mustUnlock(t, exclusive)
		got := <-waiter
		if got.err != nil {
			t.Fatal(got.err)
		}
		mustUnlock(t, got.lease)
	})
}

// TestTryLockBesideOthersOfItsKind: calls of one process that need not exclude each other all get
// the lock, although they come at the same time.
func TestTryLockBesideOthersOfItsKind(t *testing.T) {
	const callers = 5
	tryLock := func(c *dlock.Client, ctx context.Context, opts ...dlock.Option) (func(context.Context) error, error) {
		lease, err := c.TryLock(ctx, "x", opts...)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	tryLockAll := func(c *dlock.Client, ctx context.Context, opts ...dlock.Option) (func(context.Context) error, error) {
		leases, err := c.LockAll(ctx, []string{"x", "y"}, append(opts, dlock.WithWait(0))...)
		if err != nil {
			return nil, err
		}
		return leases.Unlock, nil
	}
	for name, call := range map[string]func(*dlock.Client, context.Context) (func(context.Context) error, error){
		"permits": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			return tryLock(c, ctx, dlock.WithLimit(callers))
		},
		"permits of several names": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			return tryLockAll(c, ctx, dlock.WithLimit(callers))
		},
		"shared": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			return tryLock(c, ctx, dlock.WithShared())
		},
		"shared locks of several names": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			return tryLockAll(c, ctx, dlock.WithShared())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond}, nil)
				defer c.Close()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						unlock, err := call(c, t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Minute)
						if err := unlock(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// TestOtherLimitIsRefusedAtOnceInOneProcess: a caller does not wait behind a caller of the same
// process that uses the name with another limit.
func TestOtherLimitIsRefusedAtOnceInOneProcess(t *testing.T) {
	lock, shared, permit, more := []dlock.Option{}, []dlock.Option{dlock.WithShared()}, []dlock.Option{dlock.WithLimit(1)}, []dlock.Option{dlock.WithLimit(2)}
	for _, test := range []struct {
		name                   string
		holds, waits, conflict []dlock.Option
	}{
		{"a permit of a lock", lock, lock, permit},
		{"a lock of a semaphore", permit, permit, lock},
		{"a shared lock of a semaphore", permit, permit, shared},
		{"another limit", permit, permit, more},
		{"a permit of a shared lock", shared, lock, permit},
	} {
		for inFlight, delay := range map[string]time.Duration{"known": 0, "in flight": 100 * time.Millisecond} {
			t.Run(test.name+", "+inFlight, func(t *testing.T) {
				bubble(t, func(t *testing.T, inner *memlock.Store) {
					c := dlock.New(&slowStore{remote: remote{inner}, delay: delay}, nil)
					defer c.Close()
					holder := lockSoon(c, t.Context(), test.holds...)
					waiter := lockSoon(c, t.Context(), test.waits...)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := c.Lock(ctx, "x", test.conflict...)
					var mode *driver.ModeError
					if took := time.Since(began); !errors.As(err, &mode) || took > 3*delay {
						t.Errorf("after %v: %v; want a ModeError at once", took, err)
					}
					mustUnlock(t, (<-holder).lease)
					mustUnlock(t, (<-waiter).lease)
				})
			})
		}
	}
}

// TestLockAllReservesNoName: shared callers come in although an exclusive LockAll waits for one of
// its names.
func TestLockAllReservesNoName(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		reader := mustLock(t, other, t.Context(), "x", dlock.WithShared())
		all := make(chan error, 1)
		go func() {
			leases, err := c.LockAll(t.Context(), []string{"x", "y"})
			if err == nil {
				err = leases.Unlock(t.Context())
			}
			all <- err
		}()
		time.Sleep(time.Second)
		third := dlock.New(store, nil)
		defer third.Close()
		second, err := third.TryLock(t.Context(), "x", dlock.WithShared())
		if err != nil {
			t.Errorf("a shared lock while a LockAll waits: %v", err)
		} else {
			mustUnlock(t, second)
		}
		mustUnlock(t, reader)
		if err := <-all; err != nil {
			t.Error(err)
		}
	})
}
