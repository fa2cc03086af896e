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

// TestPauseGoesOnAfterACallerGaveUp: callers that give up during a pause for other processes do not end
// it, and do not begin it again.
func TestPauseGoesOnAfterACallerGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(unnotified{store}, nil)
		defer c.Close()
		time.Sleep(time.Second) // the clock starts at zero
		lease := mustLock(t, c, t.Context(), "a")
		time.Sleep(10 * time.Second) // much longer than a time slice
		mustUnlock(t, lease)
		start := time.Now()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := c.TryLock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("a caller whose time ends during the pause: %v", err)
			}
			cancel()
		}
		mustUnlock(t, mustLock(t, c, t.Context(), "a", dlock.WithWait(0)))
		if took := time.Since(start); took <= 30*time.Millisecond || took > 130*time.Millisecond {
			t.Errorf("the pause took %v", took)
		}
	})
}

// TestPauseOfACallerWithADeadlineIsShort: a caller whose context ends before the pause for other processes
// would end takes part for a tenth of a second at most.
func TestPauseOfACallerWithADeadlineIsShort(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(unnotified{store}, nil)
		defer c.Close()
		time.Sleep(time.Second) // the clock starts at zero
		lease := mustLock(t, c, t.Context(), "a")
		time.Sleep(10 * time.Second) // much longer than a time slice
		mustUnlock(t, lease)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		mustUnlock(t, mustLock(t, c, ctx, "a"))
		if took := time.Since(start); took == 0 || took > 100*time.Millisecond {
			t.Errorf("the pause took %v; want some, and 100ms at most", took)
		}
	})
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
