package dlock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// A grant that the store revokes before the lease has started gives one error, whether the
// report arrives during the attempt or after it. Another attempt may succeed.
func TestGrantRevokedBeforeTheLeaseStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(reporter{memlock.New()}, nil)
		defer c.Close()
		s := c.settings(nil)
		h := c.newHold(t.Context(), "x", s, nil)
		sent, err := h.attempt(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		h.revocation.report()
		late := h.startLease(sent)
		early := h.accept(h.Grant, h.token, sent)
		if !errors.Is(late, ErrUnreachable) || errors.Is(late, ErrLost) || early == nil || late.Error() != early.Error() {
			t.Errorf("startLease: %v, accept: %v; want the same ErrUnreachable", late, early)
		}
		if _, err := h.attempt(t.Context(), time.Second); err != nil {
			t.Errorf("the next attempt: %v", err)
		}
		if err := h.startLease(sent); err != nil || h.endCause() != nil {
			t.Errorf("the lease of the next attempt: %v, ended: %v", err, h.endCause())
		}
		h.revocation.report()
		if cause := h.endCause(); !errors.Is(cause, ErrLost) {
			t.Errorf("a lease whose lock was revoked: %v; want ErrLost", cause)
		}
	})
}

// A waiter that runs only after the trust deadline of the lock that was handed over to it asks
// the store.
func TestHandOverThatTookTooLongIsRejected(t *testing.T) {
	for _, local := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := New(memlock.New(), nil)
			defer c.Close()
			c.traits.Local = local
			old := driver.Grant{Name: "x", Owner: driver.NewOwner(), Token: 100, TTL: DefaultTTL}
			sent := c.clock.Now()
			time.Sleep(DefaultTTL)
			h := c.newHold(t.Context(), "x", c.settings(nil), nil)
			h.tryEnter()
			h.received = &handedOver{grant: old, token: 101, sent: sent}
			if _, err := h.attempt(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			if h.Grant.Owner == old.Owner || h.wasHandedOver() {
				t.Errorf("local store: %v: the waiter has token %d of a lock that has expired", local, h.token)
			}
			h.abandon()
		})
	}
}

// A set does not go on with holds that have ended, because the lock of a later name was
// revoked.
func TestRevokedNameEndsLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(reporter{memlock.New()}, nil)
		defer c.Close()
		s := c.settings(nil)
		a := c.newHold(t.Context(), "a", s, nil)
		b := c.newHold(t.Context(), "b", s, a)
		batch := batchCall{lockCall: lockCall{client: c, settings: s, ctx: t.Context()}, holds: []*hold{a, b}, blocking: a}
		batch.startWaiting()
		a.end(ErrReleased)
		err := batch.beforeBatchRetry(b.revocation.reportTo(b))
		if err == nil {
			t.Error("LockAll tries again with a name that it has given back")
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
		c.watchdog.Forget(&lease.hold.Hold) // the watchdog does not declare it lost
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
		c.watchdog.Forget(&lease.hold.Hold) // the watchdog does not declare it lost
		time.Sleep(2 * time.Second)
		if lease.Context().Err() == nil {
			t.Error("the context of a lease that ran out lives")
		}
	})
}

// The same for a lease around that of the context: its caller is a Do inside of another one.
func TestContextOfDoChecksTheClockForTheDoAroundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		err := c.Do(t.Context(), "outer", func(ctx context.Context) error {
			outer := c.innermost(ctx)
			return c.Do(ctx, "inner", func(ctx context.Context) error {
				c.watchdog.Forget(&outer.Hold) // as if it had not run since the pause
				<-time.After(10 * time.Second)
				if err := ctx.Err(); err == nil || !errors.Is(context.Cause(ctx), ErrLost) {
					t.Errorf("the context has the error %v and the cause %v; want %v", err, context.Cause(ctx), ErrLost)
				}
				return nil
			}, WithTTL(time.Hour))
		}, WithTTL(5*time.Second))
		if !errors.Is(err, ErrNotHeld) {
			t.Errorf("Do: %v; want %v", err, ErrNotHeld)
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

// A lease that the store revokes while it starts is not watched after that.
func TestRevokedLeaseIsNotWatched(t *testing.T) {
	c := New(reporter{memlock.New()}, nil)
	defer c.Close()
	h := c.newHold(t.Context(), "x", c.settings(nil), nil)
	sent, err := h.attempt(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c.watchdog.Watch(&h.Hold, sent)
	h.mu.Lock() // h cannot end yet
	var lost sync.WaitGroup
	lost.Go(func() { h.lose(errRevoked) })
	for i := 0; i < 10_000 && len(c.watchdog.Holds()) > 0; i++ {
		runtime.Gosched() // until lose has called Forget, or waits for h.mu
	}
	if len(c.watchdog.Holds()) == 0 {
		c.watchdog.Watch(&h.Hold, sent) // by startLease, which finds that h has not ended
	}
	h.mu.Unlock()
	lost.Wait()
	if h.endCause() == nil || len(c.watchdog.Holds()) > 0 {
		t.Errorf("ended: %v, %d leases are watched; want that it has ended, and none", h.endCause(), len(c.watchdog.Holds()))
	}
	_ = h.releaseToStore(t.Context(), nil)
}

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
