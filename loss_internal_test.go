package dlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/watchdog"
	"github.com/dlock-go/dlock/memlock"
)

func bidFor(t *testing.T, c *Client, name string, s *settings) *bid {
	b := new(bid)
	initBid(b, t.Context(), c, s, name, nil)
	return b
}

// occupy makes b the occupant of a free slot.
func (b *bid) occupy() {
	b.slot, _ = b.call.client.queue.TryEnter(b.claim.name, b.occupant(b.call.client.clock.NoLaterThanNow()))
}

// mustGet makes an attempt, which the store grants, and returns when it was sent.
func (b *bid) mustGet(t *testing.T) (sent clock.Instant) {
	t.Helper()
	sent = b.call.client.clock.NoLaterThanNow()
	if err := b.claim.attempt(t.Context(), sent, time.Second); err != nil {
		t.Fatal(err)
	}
	return sent
}

// A grant that the store revokes before the lease has started gives an error. Another attempt may succeed.
func TestGrantRevokedBeforeTheLeaseStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reporter{Store: memlock.New()}
		c := New(store, nil)
		defer c.Close()
		b := bidFor(t, c, "x", c.settings(nil))
		sent := b.mustGet(t)
		store.revoke[0]()
		if err := b.begin(sent); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrLost) {
			t.Fatalf("begin: %v; want ErrUnreachable", err)
		}
		if n := len(c.watchdog.Holds()); n != 0 {
			t.Errorf("%d grants are watched", n)
		}
		if err := b.claim.attempt(t.Context(), c.clock.NoLaterThanNow(), time.Second); err != nil {
			t.Errorf("the next attempt: %v", err)
		}
		store.revoke[0]() // late, of the first attempt
		if err := b.begin(sent); err != nil || b.tenure.endCause() != nil {
			t.Errorf("the lease of the next attempt: %v, ended: %v", err, b.tenure.endCause())
		}
		store.revoke[1]()
		if cause := b.tenure.endCause(); !errors.Is(cause, ErrLost) {
			t.Errorf("a lease whose lock was revoked: %v; want ErrLost", cause)
		}
		b.unlock()
	})
}

// A waiter that runs only after the trust deadline of the lock that was handed over to it asks
// the store.
func TestHandOverThatTookTooLongIsRejected(t *testing.T) {
	for _, how := range []string{"watchdog", "clock", "revoked"} {
		synctest.Test(t, func(t *testing.T) {
			acquired, lost, released := 0, 0, 0
			store := &reporter{Store: memlock.New()}
			c := New(store, &Options{Hooks: Hooks{Acquired: func(Event) { acquired++ }, Lost: func(Event) { lost++ }, Released: func(Event) { released++ }}})
			defer c.Close()
			first, err := c.Lock(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			g := first.tenure.grant
			// as enter does, but the goroutine comes late
			place := c.queue.Wait("x", occupant{waits: true}, func(w *waiter) {
				w.settings, w.accepts, w.tenure.callerCtx = c.settings(nil), true, t.Context()
			})
			if err := first.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-place.Admitted()
			if place.Slot() != nil {
				t.Error("not served")
			}
			switch how {
			case "watchdog":
				g.lose(watchdog.ErrExpired)
			case "clock":
				c.watchdog.Forget(&g.Hold)
				time.Sleep(DefaultTTL)
			case "revoked":
				store.revoke[0]()
			}
			b := bidFor(t, c, "x", c.settings(nil))
			b.tenure = &place.Waiter.tenure
			if err := b.deliver(); err != errEndedEarly { //nolint:errorlint
				t.Fatalf("%s: deliver: %v", how, err)
			}
			if err := b.acquire(); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if b.tenure.grant == g || b.tenure.token <= place.Waiter.tenure.token {
				t.Errorf("%s: token %d after %d", how, b.tenure.token, place.Waiter.tenure.token)
			}
			b.unlock()
			synctest.Wait()
			if acquired != 2 || released != 2 || lost != 0 {
				t.Errorf("%s: hooks: %d acquired, %d released, %d lost", how, acquired, released, lost)
			}
		})
	}
}

// reporter is a store that reports losses: of the attempts in revoke.
type reporter struct {
	*memlock.Store
	revoke []func()
}

func (r *reporter) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	r.revoke = append(r.revoke, req.Lost)
	return r.Store.Acquire(ctx, req)
}

func (r *reporter) Traits() driver.Traits {
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
		c.watchdog.Forget(&lease.tenure.grant.Hold) // the watchdog does not declare it lost
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
		c.watchdog.Forget(&lease.tenure.grant.Hold) // the watchdog does not declare it lost
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
				c.watchdog.Forget(&outer.grant.Hold) // as if it had not run since the pause
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

// A context never reports that a lock is held after its grant has ended.
func TestErrReportsAnEndedHoldAtOnce(t *testing.T) {
	c := New(memlock.New(), nil)
	defer c.Close()
	check := func(what string, ctx context.Context, h *tenure) {
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
	check("the context of a lease", lease.Context(), lease.tenure)
	_ = c.Do(t.Context(), "do", func(ctx context.Context) error {
		check("the context of Do", ctx, c.innermost(ctx))
		return nil
	})
	leases, err := c.LockAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	check("the context of a set", leases.Context(), leases.leases[0].tenure)
}

// endUnseen ends a grant like a goroutine that is interrupted before it ends the contexts.
func endUnseen(t *tenure) {
	t.grant.mu.Lock()
	defer t.grant.mu.Unlock()
	t.grant.cause = ErrLost
}

// A lease that the store revokes while it starts is not watched after that.
func TestRevokedLeaseIsNotWatched(t *testing.T) {
	for range 2000 {
		store := &reporter{Store: memlock.New()}
		c := New(store, nil)
		b := bidFor(t, c, "x", c.settings(nil))
		sent := b.mustGet(t)
		var lost sync.WaitGroup
		lost.Go(store.revoke[0])
		begun := b.begin(sent)
		lost.Wait()
		if n := len(c.watchdog.Holds()); n > 0 || begun == nil && b.tenure.endCause() == nil {
			t.Fatalf("begun: %v, %d leases are watched; want none", begun, n)
		}
		b.unlock()
		_ = c.Close()
	}
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
			g := c.innermost(ctx).grant
			c.watchdog.Forget(&g.Hold)
			time.Sleep(2 * g.Grant.TTL)
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
