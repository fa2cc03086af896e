package dlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

func TestLeaseOutlivesTheContextOfLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		lease := mustLock(t, c, ctx, "x")
		cancel()
		time.Sleep(5 * time.Minute) // the watchdog goes on
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease ended with the context of Lock: %v", err)
		}
		if lease.Context().Value(key{}) != "v" {
			t.Error("the lease's context lost the values of the caller's")
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock with a cancelled context: %v", err)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("second Unlock: %v", err)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrReleased) {
			t.Errorf("after Unlock the cause is %v", cause)
		}
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with a cancelled context: %v", err)
		}
	})
}

type key struct{}

func TestRemainingCountsToTheTrustDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(30*time.Second), dlock.WithMargin(5*time.Second))
		if left := lease.Remaining(); left != 25*time.Second {
			t.Errorf("at first %v", left)
		}
		time.Sleep(20 * time.Second)
		if left := lease.Remaining(); left != 5*time.Second {
			t.Errorf("after 20 s %v", left)
		}
		mustUnlock(t, lease)
		if left := lease.Remaining(); left != 0 {
			t.Errorf("after Unlock %v", left)
		}
		lease = mustLock(t, c, t.Context(), "x")
		time.Sleep(time.Hour)
		if left := lease.Remaining(); left < 19*time.Second {
			t.Errorf("with renewals %v", left)
		}
		mustUnlock(t, lease)
	})
}

func TestFixedTTLTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		lost := make(chan dlock.Event, 1)
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.Event) { lost <- e }}})
		defer c.Close()
		start := time.Now()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(10*time.Second))
		// A waiter of the same process gets it without an Unlock.
		second := mustLock(t, c, t.Context(), "x")
		if waited := time.Since(start); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("the lock timed out after %v", waited)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("the context's cause is %v", cause)
		}
		if e := <-lost; !errors.Is(e.Err, dlock.ErrLost) || e.Name != "x" || e.Token != lease.Token() {
			t.Errorf("the hook was called with %+v", e)
		}
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("Unlock after the timeout: %v", err)
			}
		}
		if err := second.Context().Err(); err != nil {
			t.Errorf("a late Unlock ended the lease of another holder: %v", err)
		}
		mustUnlock(t, second)
	})
}
