package dlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func TestUnlockReportsALossItFinds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		if err := c.Break(t.Context(), "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrLost) {
				t.Errorf("Unlock: %v; want ErrNotHeld and ErrLost", err)
			}
		}
	})
}

func TestUnlockWorksWithACancelledContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(newNetwork(store), nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is still held", info.Name)
		}
	})
}

// A release whose reply was lost has released the lock.
func TestUnlockSucceedsAfterALostReply(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&deafOnce{network: newNetwork(store)}, nil)
		defer c.Close()
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}

// deafOnce loses the reply of the first release.
type deafOnce struct {
	*network
	done atomic.Bool
}

func (d *deafOnce) Release(ctx context.Context, grant driver.Grant) error {
	err := d.network.Release(ctx, grant)
	if d.done.CompareAndSwap(false, true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// A second release that finds nothing is no success after the lock expired: another holder may
// have had it.
func TestSecondReleaseAfterExpiryReportsTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&swallowFirst{network: newNetwork(store)}, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock: %v; want ErrNotHeld, since the lock expired before the second release", err)
		}
	})
}

// swallowFirst loses the first release, and blocks its caller.
type swallowFirst struct {
	*network
	done atomic.Bool
}

func (s *swallowFirst) Release(ctx context.Context, grant driver.Grant) error {
	if s.done.CompareAndSwap(false, true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.network.Release(ctx, grant)
}

func TestUnlockReturnsTheSameErrorTwice(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		n.setCut(true)
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Unlock: %v", err)
			}
		}
		n.setCut(false)
		time.Sleep(time.Minute) // the lock expires
	})
}

func TestUnlockIsBoundedWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(mute{remote{store}}, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		start := time.Now()
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Unlock: %v; want that the store did not answer", err)
		}
		if took := time.Since(start); took > 2*dlock.DefaultRequestTimeout {
			t.Errorf("Unlock took %v; want the time of two requests at most", took)
		}
		time.Sleep(time.Minute) // the lock expires
	})
}

// mute never answers a release, and returns the cause of its context.
type mute struct{ remote }

func (mute) Release(ctx context.Context, _ driver.Grant) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestRenewalEndsBeforeTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &slowRenewal{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if !store.renewing.Load() {
			t.Fatal("no renewal is under way")
		}
		mustUnlock(t, lease)
		if store.overlap.Load() {
			t.Error("the release was sent while a renewal was under way")
		}
	})
}

// slowRenewal takes a second to renew.
type slowRenewal struct {
	*memlock.Store
	renewing atomic.Bool
	overlap  atomic.Bool // a release came while a renewal was under way
}

func (s *slowRenewal) Renew(ctx context.Context, grants []driver.Grant) []error {
	s.renewing.Store(true)
	defer s.renewing.Store(false)
	time.Sleep(time.Second)
	return s.Store.Renew(ctx, grants)
}

func (s *slowRenewal) Release(ctx context.Context, grant driver.Grant) error {
	s.overlap.Store(s.renewing.Load())
	return s.Store.Release(ctx, grant)
}

// The wait for a renewal without an answer counts for the limit of Unlock.
func TestUnlockDuringARenewalIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		n.setCut(true)
		time.Sleep(10*time.Second + time.Millisecond) // a renewal has just begun
		start := time.Now()
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Unlock: %v; want ErrUnreachable", err)
		}
		if took := time.Since(start); took > 2*dlock.DefaultRequestTimeout {
			t.Errorf("Unlock took %v; want the time of two requests at most", took)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// A nil context is a mistake, but the lock that it would leave behind is worse.
func TestUnlockWithoutAContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		var none context.Context
		for range 2 {
			if err := mustLock(t, c, t.Context(), "x").Unlock(none); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			leases, err := c.LockAll(t.Context(), []string{"x", "y"})
			if err != nil {
				t.Fatal(err)
			}
			if err := leases.Unlock(none); err != nil {
				t.Errorf("Unlock of several: %v", err)
			}
		}
	})
}
