package dlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// slowRelease is a store that takes a second to release a lock.
type slowRelease struct{ *memlock.Store }

func (s slowRelease) Release(ctx context.Context, grant driver.Grant) error {
	time.Sleep(time.Second)
	return s.Store.Release(ctx, grant)
}

// TestConcurrentUnlockInABubble: a bubble of testing/synctest, in which time passes only while every
// goroutine waits at a channel, goes on while an Unlock or Close waits for another one.
func TestConcurrentUnlockInABubble(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(slowRelease{inner}, nil)
		lease := mustLock(t, c, t.Context(), "x")
		mustLock(t, c, t.Context(), "y")
		twice := func(what string, call func() error) {
			start := time.Now()
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if err := call(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if took := time.Since(start); took == 0 {
						t.Errorf("%s did not wait for the first", what)
					}
				})
			}
			both.Wait()
		}
		twice("Unlock", func() error { return lease.Unlock(t.Context()) })
		twice("Close", c.Close)
	})
}
