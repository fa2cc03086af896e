package dlock_test

import (
	"context"
	"errors"
	"sync"
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

// While a call pauses for other processes, the process waits for no answer of the store: a call behind
// it whose wait ends does not report an outage.
func TestWaitBehindAPauseReportsNoOutage(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	for name, call := range map[string]struct {
		pauses []string       // the names of the call that pauses
		opts   []dlock.Option // of the call behind it
	}{
		"Lock":          {[]string{"a"}, nil},
		"LockAll":       {[]string{"a", "b"}, nil},
		"a shared lock": {[]string{"a"}, []dlock.Option{dlock.WithShared()}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(store, nil)
				defer c.Close()
				for range 3 { // longer than a time slice; none of them pauses
					lease := mustLock(t, c, t.Context(), "a", dlock.WithWait(time.Microsecond))
					<-time.After(20 * time.Millisecond)
					mustUnlock(t, lease)
				}
				start := time.Now()
				var pausing sync.WaitGroup
				pausing.Go(func() {
					leases, err := c.LockAll(t.Context(), call.pauses)
					if err != nil {
						t.Error(err)
						return
					}
					if time.Since(start) < 100*time.Microsecond {
						t.Error("the first call did not pause")
					}
					_ = leases.Unlock(t.Context())
				})
				synctest.Wait()
				err := c.Do(t.Context(), "a", nothing, append(call.opts, dlock.WithWait(time.Microsecond))...)
				if !errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("got: %v; want %v", err, dlock.ErrHeld)
				}
				pausing.Wait()
			})
		})
	}
}
