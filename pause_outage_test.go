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

// farUnwatched is a store over a network without notifications.
type farUnwatched struct{ driver.Store }

func (f farUnwatched) Traits() driver.Traits {
	t := f.Store.Traits()
	t.Local = false
	return t
}

// pauser returns a client of which the next caller for x pauses for other processes when long is unlocked.
func pauser(t *testing.T) (c *dlock.Client, long *dlock.Lease) {
	t.Helper()
	c = dlock.New(farUnwatched{memlock.New()}, &dlock.Options{RequestTimeout: 200 * time.Millisecond})
	time.Sleep(time.Second) // the clock of a client begins at zero
	mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	return c, mustLock(t, c, t.Context(), "x")
}

const longTime = 10 * time.Second

// TestPauseIsNoOutage: a caller behind one that pauses for other processes waits for no answer of the store.
func TestPauseIsNoOutage(t *testing.T) {
	for _, waited := range []bool{false, true} { // the one that pauses, for another caller
		synctest.Test(t, func(t *testing.T) {
			c, long := pauser(t)
			defer c.Close()
			var next <-chan lockResult
			if waited {
				next = lockSoon(c, t.Context())
			}
			time.Sleep(longTime)
			mustUnlock(t, long)
			if waited {
				time.Sleep(time.Millisecond)
			} else {
				next = lockSoon(c, t.Context())
			}
			behind := lockSoon(c, t.Context())
			if _, err := c.TryLock(t.Context(), "x"); errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("TryLock, waited %v: %v", waited, err)
			}
			for _, soon := range []<-chan lockResult{next, behind} {
				got := <-soon
				if got.err != nil {
					t.Errorf("waited %v: %v", waited, got.err)
					continue
				}
				mustUnlock(t, got.lease)
			}
		})
	}
}

// TestPauseTakesNoTimeFromTheAttempt: a pause of the caller does not shorten the time for the answer.
func TestPauseTakesNoTimeFromTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, long := pauser(t)
		defer c.Close()
		time.Sleep(longTime)
		mustUnlock(t, long)
		ctx, cancel := context.WithCancel(t.Context())
		next := lockSoon(c, ctx)
		time.AfterFunc(150*time.Millisecond, cancel)
		lease, err := c.TryLock(t.Context(), "x")
		if err != nil {
			t.Error(err)
		} else {
			mustUnlock(t, lease)
		}
		<-next
	})
}

// TestPauseTakesNoTimeFromTheLease: a lease begins after the pause of its caller.
func TestPauseTakesNoTimeFromTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, long := pauser(t)
		defer c.Close()
		whole := long.Remaining()
		time.Sleep(longTime)
		mustUnlock(t, long)
		start := time.Now()
		lease, err := c.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(start) == 0 {
			t.Error("TryLock did not pause")
		}
		if left := lease.Remaining(); left != whole {
			t.Errorf("the lease lasts for %v; want %v", left, whole)
		}
		mustUnlock(t, lease)
	})
}
