package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// slowDowngrade carries out a downgrade late.
type slowDowngrade struct {
	*memlock.Store
	delay time.Duration
}

func (s *slowDowngrade) Downgrade(ctx context.Context, grant driver.Grant) error {
	time.Sleep(s.delay)
	return s.Store.Downgrade(ctx, grant)
}

// TestUnlockDuringADowngrade: the lock is not handed over, because the downgrade under way would make
// the next holder a shared one.
func TestUnlockDuringADowngrade(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c, other := dlock.New(&slowDowngrade{inner, time.Second}, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		lease := lockInCrowd(t, c)
		next := lockSoon(c, t.Context())
		downgraded := make(chan error, 1)
		go func() { downgraded <- lease.Downgrade(t.Context()) }()
		synctest.Wait()
		mustUnlock(t, lease)
		if err := <-downgraded; !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("a downgrade that the store carried out after the release: %v", err)
		}
		got := <-next
		if got.err != nil {
			t.Fatal(got.err)
		}
		if _, err := other.TryLock(t.Context(), "x", dlock.WithShared()); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a shared lock beside an exclusive one: %v", err)
		}
		mustUnlock(t, got.lease)
	})
}

// TestDowngradeOfALostLease: the error says so, also for a lease that is shared already, and a loss
// that the downgrade finds ends the lease.
func TestDowngradeOfALostLease(t *testing.T) {
	for name, opts := range map[string][]dlock.Option{"exclusive": nil, "shared": {dlock.WithShared()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(store, nil)
				defer c.Close()
				lease := mustLock(t, c, t.Context(), "x", opts...)
				if err := store.Break(t.Context(), "x", lease.Token()); err != nil {
					t.Fatal(err)
				}
				if opts != nil {
					<-lease.Context().Done()
				}
				if err := lease.Downgrade(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
					t.Errorf("Downgrade of a lost lease: %v; want ErrNotHeld", err)
				}
				if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
					t.Errorf("the context ended with %v; want ErrLost", cause)
				}
				_ = lease.Unlock(t.Context()) // it is lost
			})
		})
	}
}

// A Downgrade that panics, because of a nil context, leaves nothing behind that later callers wait for.
func TestPanickingDowngradeLeavesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dlock.New(memlock.New(), nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		func() {
			defer func() { _ = recover() }()
			_ = lease.Downgrade(nil) //nolint:staticcheck // on purpose
		}()
		mustUnlock(t, lease)
		mustUnlock(t, mustLock(t, c, t.Context(), "x", dlock.WithWait(time.Hour)))
	})
}
