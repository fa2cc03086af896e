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

// A loss that the store reports between the grant and the beginning of the lease ends the
// acquisition.
func TestLossReportedBetweenGrantAndBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(reporter{memlock.New()}, nil)
		defer c.Close()
		s := c.settings(nil)
		h := c.newHold(t.Context(), "x", &s, nil)
		sent, err := h.attempt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.reportedLost(h.attempts)
		if err := h.begin(sent); !errors.Is(err, ErrLost) {
			t.Errorf("begin: %v; want ErrLost", err)
		}
		if h.context().Err() == nil {
			t.Error("the context of the lease lives")
		}
	})
}

// reporter is a store that reports losses.
type reporter struct{ *memlock.Store }

func (r reporter) Traits() driver.Traits {
	traits := r.Store.Traits()
	traits.ReportsLoss = true
	return traits
}

// A re-entry checks the clock itself: the watchdog may not have run since the trust
// deadline, if the process was stopped.
func TestReentryChecksTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		lease, err := c.Lock(t.Context(), "x", WithFixedTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		c.dog.Forget(&lease.hold.Lease) // the watchdog does not declare it lost
		time.Sleep(2 * time.Second)
		inner := context.WithoutCancel(lease.Context())
		if _, err := c.Lock(inner, "x"); !errors.Is(err, ErrLost) {
			t.Errorf("Lock in the context of a lease that ran out: %v; want ErrLost", err)
		}
	})
}

// Err of a lease's context checks the clock, too.
func TestContextChecksTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		lease, err := c.Lock(t.Context(), "x", WithFixedTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		c.dog.Forget(&lease.hold.Lease) // the watchdog does not declare it lost
		time.Sleep(2 * time.Second)
		if lease.Context().Err() == nil {
			t.Error("the context of a lease that ran out lives")
		}
	})
}

// A context never reports that a lock is held after the hold has ended.
func TestErrReportsAnEndedHoldAtOnce(t *testing.T) {
	c := New(memlock.New(), nil)
	defer c.Close()
	check := func(what string, ctx context.Context, h *hold) {
		t.Helper()
		if err := ctx.Err(); err != nil {
			t.Errorf("%s is done at once: %v", what, err)
		}
		endUnseen(h)
		if err := ctx.Err(); err == nil {
			t.Errorf("%s is not done", what)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLost) {
			t.Errorf("%s: cause %v", what, cause)
		}
	}
	lease, err := c.Lock(t.Context(), "lease")
	if err != nil {
		t.Fatal(err)
	}
	check("the context of a lease", lease.Context(), lease.hold)
	_ = c.Do(t.Context(), "do", func(ctx context.Context) error {
		check("the context of Do", ctx, c.innermost(ctx))
		return nil
	})
	leases, err := c.LockAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	check("the context of a set", leases.Context(), leases.leases[0].hold)
}

// endUnseen ends a hold like a goroutine that is interrupted before it ends the context.
func endUnseen(h *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(ErrLost)
}
