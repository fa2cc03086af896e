package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// A pause for other processes that a caller skips does not show that no other process wants the
// lock: the next caller that has the time pauses.
func TestSkippedPauseDoesNotLengthenTheSlice(t *testing.T) {
	for name, skip := range map[string]func(t *testing.T, c *dlock.Client) *dlock.Lease{
		"the limit is shorter": func(t *testing.T, c *dlock.Client) *dlock.Lease {
			return mustLock(t, c, t.Context(), "a", dlock.WithWait(time.Millisecond))
		},
		"LockAll waits for another name": func(t *testing.T, c *dlock.Client) *dlock.Lease {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan struct{})
			go func() {
				defer close(failed)
				if _, err := c.LockAll(ctx, []string{"a", "held"}); err == nil {
					t.Error("LockAll of a name that is held succeeded")
				}
			}()
			synctest.Wait()
			cancel()
			<-failed
			return mustLock(t, c, t.Context(), "a", dlock.WithWait(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(store, nil)
				defer c.Close()
				held := mustLock(t, c, t.Context(), "held")
				lease := mustLock(t, c, t.Context(), "a")
				for range 6 {
					<-time.After(20 * time.Millisecond) // longer than a time slice
					mustUnlock(t, lease)
					lease = skip(t, c)
				}
				<-time.After(20 * time.Millisecond)
				mustUnlock(t, lease)
				start := time.Now()
				lease = mustLock(t, c, t.Context(), "a")
				if time.Since(start) == 0 {
					t.Error("a caller that has the time did not pause at the end of a time slice")
				}
				mustUnlock(t, lease)
				mustUnlock(t, held)
			})
		})
	}
}
