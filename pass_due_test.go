package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// deafened is a store whose notifications are lost.
type deafened struct{ *memlock.Store }

func (deafened) Watch(context.Context, driver.Request, func()) (func(), error) {
	return func() {}, nil
}

// TestPassedClaimIsTriedWhenItIsDue: callers with a limit that come all the time, so that each inherits the claim of the one before, get a
// lock that has become free: the claim is tried again when it is due, however often it was passed on.
func TestPassedClaimIsTriedWhenItIsDue(t *testing.T) {
	for _, test := range []struct {
		name    string
		store   func(*memlock.Store) driver.Store
		limit   time.Duration
		release bool // or the holder dies
	}{
		{"dead holder", func(s *memlock.Store) driver.Store { return s }, 4 * time.Second, false},
		{"lost notification", func(s *memlock.Store) driver.Store { return deafened{s} }, 4 * time.Second, true},
		{"polling", func(s *memlock.Store) driver.Store { return farUnwatched{s} }, 100 * time.Millisecond, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				dead := driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: 10 * time.Second}
				grant, err := store.Acquire(t.Context(), dead)
				if err != nil {
					t.Fatal(err)
				}
				c := dlock.New(test.store(store), nil)
				defer c.Close()
				var wg sync.WaitGroup
				freeAt := time.Now().Add(10 * time.Second)
				if test.release {
					wg.Go(func() { <-time.After(time.Until(freeAt)); _ = store.Release(context.Background(), grant) })
				}
				var mu sync.Mutex
				got, refused := 0, 0
				var last time.Duration
				for range int(100 * time.Second / (test.limit / 2)) {
					wg.Go(func() {
						lease, err := c.Lock(t.Context(), "x", dlock.WithWait(test.limit))
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							got++
							_ = lease.Unlock(t.Context())
						case time.Since(freeAt) > 0:
							refused++
							last = time.Since(freeAt)
						}
					})
					<-time.After(test.limit / 2)
				}
				wg.Wait()
				if last > 20*time.Second {
					t.Errorf("%d callers were refused while the lock was free, the last one after %v; %d got it", refused, last, got)
				}
			})
		})
	}
}
