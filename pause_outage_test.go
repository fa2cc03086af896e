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

type farUnwatched struct{ driver.Store }

func (f farUnwatched) Traits() driver.Traits {
	t := f.Store.Traits()
	t.Local = false
	return t
}

// TestPauseIsNoOutage: a caller behind one that pauses for other processes waits for no answer of the store.
func TestPauseIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dlock.New(farUnwatched{memlock.New()}, &dlock.Options{RequestTimeout: 200 * time.Millisecond})
		defer c.Close()
		time.Sleep(time.Second) // the clock of a client begins at zero
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		long := mustLock(t, c, t.Context(), "x")
		time.Sleep(10 * time.Second)
		mustUnlock(t, long)
		next := lockSoon(c, t.Context())
		behind := lockSoon(c, t.Context())
		_, err := c.TryLock(t.Context(), "x")
		if errors.Is(err, dlock.ErrUnreachable) {
			t.Error(err)
		}
		got := <-next
		if got.err == nil {
			mustUnlock(t, got.lease)
		}
		got = <-behind
		if got.err != nil {
			t.Error(got.err)
		} else {
			mustUnlock(t, got.lease)
		}
	})
}

// TestPauseOfAWaiterIsNoOutage: a caller behind one that pauses for other processes waits for no answer of the store, also if the one has waited
// for another caller.
func TestPauseOfAWaiterIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dlock.New(farUnwatched{memlock.New()}, &dlock.Options{RequestTimeout: 200 * time.Millisecond})
		defer c.Close()
		time.Sleep(time.Second) // the clock of a client begins at zero
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		long := mustLock(t, c, t.Context(), "x")
		next := lockSoon(c, t.Context())
		time.Sleep(10 * time.Second)
		mustUnlock(t, long)
		time.Sleep(time.Millisecond)
		behind := lockSoon(c, t.Context())
		if _, err := c.TryLock(t.Context(), "x"); errors.Is(err, dlock.ErrUnreachable) {
			t.Error(err)
		}
		got := <-next
		if got.err == nil {
			mustUnlock(t, got.lease)
		}
		got = <-behind
		if got.err != nil {
			t.Error(got.err)
		} else {
			mustUnlock(t, got.lease)
		}
	})
}

// TestPauseTakesNoTimeFromTheAttempt: a pause of the caller does not shorten the time for the answer.
func TestPauseTakesNoTimeFromTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dlock.New(farUnwatched{memlock.New()}, &dlock.Options{RequestTimeout: 200 * time.Millisecond})
		defer c.Close()
		time.Sleep(time.Second) // the clock of a client begins at zero
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		long := mustLock(t, c, t.Context(), "x")
		time.Sleep(10 * time.Second)
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
