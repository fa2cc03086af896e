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

func TestADifferentContextWaits(t *testing.T) {
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

// Hand over hand: a lock that was unlocked inside another can be had again there.
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
		_ = lease.Unlock(t.Context())
		synctest.Wait()
	})
}

func TestLeaseContextReachesItsChildren(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		child, cancel := context.WithTimeout(lease.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		<-child.Done()
		if passed := time.Since(start); passed > time.Second {
			t.Errorf("the child's end came after %v", passed)
		}
		if !errors.Is(context.Cause(child), dlock.ErrLost) {
			t.Errorf("the child's cause is %v", context.Cause(child))
		}
		_ = lease.Unlock(t.Context())
	})
}
