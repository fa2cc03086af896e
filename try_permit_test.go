package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// TestTryLockBehindPermitsReportsNoOutage: while other callers of the process take permits one after the other,
// for longer than a RequestTimeout, the store answers all the time.
func TestTryLockBehindPermitsReportsNoOutage(t *testing.T) {
	for name, mode := range map[string][]dlock.Option{
		"permits": {dlock.WithLimit(1000)},
		"shared":  {dlock.WithShared(), dlock.WithFixedTTL(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dlock.New(newDistant(memlock.New()), &dlock.Options{RequestTimeout: 500 * time.Millisecond})
				defer c.Close()
				var all sync.WaitGroup
				for range 200 {
					all.Go(func() {
						if lease, err := c.Lock(t.Context(), "x", mode...); err == nil {
							time.Sleep(5 * time.Second)
							_ = lease.Unlock(context.Background())
						} else {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				began := time.Now()
				lease, err := c.TryLock(t.Context(), "x", mode...)
				if err != nil {
					t.Errorf("after %v: %v", time.Since(began), err)
				} else {
					mustUnlock(t, lease)
				}
				all.Wait()
			})
		})
	}
}
