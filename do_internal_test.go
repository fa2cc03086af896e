package dlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// deafToRelease is a store that does not answer a Release.
type deafToRelease struct{ *memlock.Store }

func (deafToRelease) Release(context.Context, driver.Grant) error { return driver.ErrUnreachable }

// TestDoReportsALossThatNobodyHasNoticed: a process that was paused inside fn goes on after the end of its
// lease. fn returns before the watchdog runs, and the store does not answer, or is not asked.
func TestDoReportsALossThatNobodyHasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(deafToRelease{memlock.New()}, nil)
		defer c.Close()
		pause := func(ctx context.Context) error {
			h := c.innermost(ctx)
			c.watchdog.Forget(&h.Hold)
			time.Sleep(2 * h.Grant.TTL)
			return nil
		}
		if err := c.Do(t.Context(), "x", pause); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Do: %v; want ErrNotHeld", err)
		}
		outer, err := c.Lock(t.Context(), "y")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(outer.Context(), "y", pause); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Do that re-enters: %v; want ErrNotHeld", err)
		}
		_ = outer.Unlock(t.Context()) // it is lost
	})
}
