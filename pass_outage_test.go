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

// mutable is a store that stops answering when it is silent.
type mutable struct {
	remote
	silent atomic.Bool
}

func (m *mutable) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if m.silent.Load() {
		<-ctx.Done()
		return driver.Grant{}, context.Cause(ctx)
	}
	return m.Store.Acquire(ctx, req)
}

func (m *mutable) Release(ctx context.Context, g driver.Grant) error {
	if m.silent.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return m.Store.Release(ctx, g)
}

// TestPassedClaimDoesNotHideAnOutage: callers with a limit that come all the time, so that each inherits the
// claim of the one before, report an outage and not the holder that the store named before it.
func TestPassedClaimDoesNotHideAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mutable{remote: remote{memlock.New()}}
		if _, err := store.Store.Acquire(t.Context(), driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c := dlock.New(store, nil)
		var wg sync.WaitGroup
		var mu sync.Mutex
		began := time.Now()
		var last time.Duration
		held, try := 0, 0
		for i := range 200 {
			if i == 10 {
				store.silent.Store(true)
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := c.Lock(ctx, "x")
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, dlock.ErrHeld) && time.Since(began) > 60*time.Second {
					held++
					last = time.Since(began)
				}
			})
			if i == 190 {
				if _, err := c.TryLock(t.Context(), "x"); errors.Is(err, dlock.ErrHeld) {
					try++
				}
			}
			time.Sleep(time.Second)
		}
		wg.Wait()
		if held > 0 || try > 0 {
			t.Errorf("%d callers and %d tries report a holder during an outage, the last one after %v", held, try, last)
		}
		_ = c.Close()
	})
}
