package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

func TestReentryCounts(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		outer := mustLock(t, c, t.Context(), "x")
		between := mustLock(t, c, outer.Context(), "y")
		inner := mustLock(t, c, between.Context(), "x") // through the lock of another name
		if inner.Token() != outer.Token() {
			t.Errorf("re-entry has token %d, the lock has %d", inner.Token(), outer.Token())
		}
		for _, lease := range []*dlock.Lease{inner, inner, outer} {
			if _, err := other.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("free before the last Unlock: %v", err)
			}
			mustUnlock(t, lease)
		}
		mustUnlock(t, mustLock(t, other, t.Context(), "x", dlock.WithWait(0)))
		mustUnlock(t, between)
	})
}

func TestOtherContextDoesNotReenter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, c, t.Context(), "x")
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("another context of the same goroutine: %v", err)
		}
		if _, err := other.TryLock(lease.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("the context of another client's lease: %v", err)
		}
		mustUnlock(t, lease)
	})
}

// A lock that was unlocked inside another lock can be acquired again there.
func TestUnlockedLockIsNotReentered(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		first := mustLock(t, c, t.Context(), "x")
		second := mustLock(t, c, first.Context(), "y")
		mustUnlock(t, first)
		again := mustLock(t, c, second.Context(), "x", dlock.WithWait(0))
		if again.Token() <= first.Token() {
			t.Errorf("token %d after %d: it was not acquired again", again.Token(), first.Token())
		}
		mustUnlock(t, again)
		mustUnlock(t, second)
	})
}

func TestReentryOfALostLockFails(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		ctx, cancel := context.WithCancel(lease.Context())
		defer cancel()
		time.Sleep(time.Minute)
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Lock with the context of a lost lease: %v", err)
		}
		if _, err := c.Lock(context.WithoutCancel(ctx), "x"); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Lock with a context that outlives that of a lost lease: %v; want ErrLost", err)
		}
		_ = lease.Unlock(t.Context())
		synctest.Wait()
	})
}

func TestLossEndsDerivedContexts(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		child, cancel := context.WithTimeout(lease.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		<-child.Done()
		if passed := time.Since(start); passed > time.Second {
			t.Errorf("the derived context ended after %v", passed)
		}
		if !errors.Is(context.Cause(child), dlock.ErrLost) {
			t.Errorf("the cause of the derived context is %v", context.Cause(child))
		}
		_ = lease.Unlock(t.Context())
	})
}

// The context of a re-entry finds all holds around its caller, and the values of the context
// that it was given.
func TestReentryFindsTheHoldsAroundIt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		type key struct{}
		outer := mustLock(t, c, t.Context(), "x")
		between := mustLock(t, c, outer.Context(), "y")
		again := mustLock(t, c, context.WithValue(between.Context(), key{}, "here"), "x")
		if got := again.Context().Value(key{}); got != "here" {
			t.Errorf("the value of the context given is %v", got)
		}
		inside := mustLock(t, c, again.Context(), "y", dlock.WithWait(0))
		for _, lease := range []*dlock.Lease{inside, again, between, outer} {
			mustUnlock(t, lease)
		}
		err := c.Do(t.Context(), "x", func(ctx context.Context) error {
			return c.Do(ctx, "y", func(ctx context.Context) error {
				return c.Do(ctx, "x", func(ctx context.Context) error {
					return c.Do(ctx, "y", func(context.Context) error { return nil }, dlock.WithWait(0))
				})
			})
		})
		if err != nil {
			t.Errorf("Do inside of Do: %v", err)
		}
	})
}

// A lease that re-entered has a context of its own, which ends with the lease or the lock.
func TestReentryHasItsOwnContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		outer := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Minute))
		first, second := mustLock(t, c, outer.Context(), "x"), mustLock(t, c, outer.Context(), "x")
		unseen := mustLock(t, c, outer.Context(), "x")
		ended := first.Context()
		mustUnlock(t, first)
		mustUnlock(t, unseen)
		for _, ctx := range []context.Context{ended, unseen.Context()} {
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), dlock.ErrReleased) {
				t.Errorf("the context of a re-entry that was unlocked: %v, %v", ctx.Err(), context.Cause(ctx))
			}
		}
		if err := errors.Join(outer.Context().Err(), second.Context().Err()); err != nil {
			t.Errorf("the others': %v", err)
		}
		time.Sleep(2 * time.Minute)
		if ctx := second.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), dlock.ErrLost) {
			t.Errorf("the context of a re-entry of a lock that was lost: %v, %v", ctx.Err(), context.Cause(ctx))
		}
		_, _ = second.Unlock(t.Context()), outer.Unlock(t.Context())
		synctest.Wait()
	})
}

// The context of a set of re-entries ends with the set, not with the leases around it.
func TestSetOfReentriesHasItsOwnContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		outer := mustLock(t, c, t.Context(), "x")
		between := mustLock(t, c, outer.Context(), "y")
		lockAll := func() *dlock.Leases {
			set, err := c.LockAll(between.Context(), []string{"x"})
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		ended, goesOn := lockAll(), lockAll()
		ctx, other := ended.Context(), goesOn.Context()
		if err := ended.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), dlock.ErrReleased) {
			t.Errorf("the context of a set that was unlocked: %v, %v", ctx.Err(), context.Cause(ctx))
		}
		mustUnlock(t, between)
		synctest.Wait()
		if other.Err() != nil {
			t.Errorf("the context of a set ended with another lock: %v", context.Cause(other))
		}
		if err := goesOn.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, outer)
	})
}

// The loss of the lock closes Done of a lease that re-entered, also if Err is not called.
func TestLossEndsAReentry(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		again := mustLock(t, c, lease.Context(), "x")
		select {
		case <-again.Context().Done():
		case <-time.After(time.Minute):
			t.Fatal("the context of the re-entry goes on after the loss of the lock")
		}
		if cause := context.Cause(again.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("the cause is %v; want ErrLost", cause)
		}
		_ = again.Unlock(t.Context())
		_ = lease.Unlock(t.Context())
	})
}

// After Unlock, a context that comes from the lease of a lost lock locks the name anew, whether the
// loss was found by Unlock or before.
func TestContextOfAnUnlockedLostLockLocksAnew(t *testing.T) {
	for name, passed := range map[string]time.Duration{"by Unlock": 0, "before": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(store, nil)
				defer c.Close()
				lease := mustLock(t, c, t.Context(), "x")
				ctx := context.WithoutCancel(lease.Context())
				if err := c.Break(t.Context(), "x", lease.Token()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(passed)
				if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrLost) {
					t.Errorf("Unlock: %v; want ErrNotHeld and ErrLost", err)
				}
				mustUnlock(t, mustLock(t, c, ctx, "x"))
			})
		})
	}
}
