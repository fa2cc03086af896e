package dlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/ending"
	"github.com/dlock-go/dlock/internal/watchdog"
	"github.com/dlock-go/dlock/memlock"
)

// How a grant begins and ends, and what its tenures see of it.

// begun returns a bid whose tenure has begun and is not delivered yet.
func begun(t *testing.T, c *Client, name string) *bid {
	t.Helper()
	b := bidFor(t, c, name, c.settings(nil))
	b.occupy()
	if err := b.begin(b.mustGet(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

// checkEmpty reports the locks that are left in the store.
func checkEmpty(t *testing.T, store *memlock.Store) {
	t.Helper()
	for info := range store.List(t.Context(), "") {
		t.Errorf("left behind: %+v", info)
	}
}

// TestEndedGrantHasNoNewTenure: a grant that ends before its lease begins gives an error, and the next
// attempt is one of another owner.
func TestEndedGrantHasNoNewTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		b := bidFor(t, c, "x", c.settings(nil))
		b.occupy()
		sent := b.mustGet(t)
		g := b.claim.grant
		g.lose(watchdog.ErrExpired)
		if err := b.begin(sent); !errors.Is(err, ErrUnreachable) {
			t.Fatalf("begin: %v; want ErrUnreachable", err)
		}
		if err := b.attemptUntilGranted(); err != nil || b.tenure.grant == g {
			t.Fatalf("the next attempt: %v", err)
		}
		b.unlock()
	})
}

// TestGrantBeginsWithItsSlot: the tenure of an exclusive grant begins in the step in which the slot gets the
// grant. A grant that is held before that may end and leave the slot, which then would get a grant that
// has ended.
func TestGrantBeginsWithItsSlot(t *testing.T) {
	c := New(memlock.New(), nil)
	defer c.Close()
	b := bidFor(t, c, "x", c.settings(nil))
	b.occupy()
	sent := b.mustGet(t)
	g, slot, began := b.claim.grant, b.slot, make(chan error, 1)
	slot.Update(func(*occupant) { // nothing changes the slot meanwhile
		go func() { began <- b.begin(sent) }()
		for range 10_000 {
			runtime.Gosched()
		}
		if g.status().held {
			t.Error("the grant is held, and its slot does not have it")
		}
	})
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	if v := c.queue.View("x"); v.Occupant.grant != g {
		t.Error("the slot does not have the grant")
	}
	b.unlock()
}

// TestGrantEndsOnce: a loss that is reported twice, or before Close, is one loss, and leaves the slot once.
func TestGrantEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reporter{Store: memlock.New()}
		lost, released := 0, 0
		c := New(store, &Options{Hooks: Hooks{Lost: func(Event) { lost++ }, Released: func(Event) { released++ }}})
		lease := lockX(t, c, t.Context())
		store.revoke[0]()
		store.revoke[0]()
		if v := c.queue.View("x"); v.Occupied {
			t.Error("a grant that was lost has its slot")
		}
		_ = c.Close()
		if lost != 1 || released != 0 {
			t.Errorf("%d losses and %d releases were reported; want 1 and 0", lost, released)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock: %v; want ErrLost", err)
		}
	})
}

// TestLostGrantOfACallIsReleased: the store may still count a lock as held that was lost before its call
// returned. It is released at once.
func TestLostGrantOfACallIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := New(store, nil)
		defer c.Close()
		b := begun(t, c, "x")
		b.tenure.grant.lose(errRevoked)
		if err := b.deliver(); err != errEndedEarly { //nolint:errorlint
			t.Errorf("deliver: %v", err)
		}
		synctest.Wait()
		checkEmpty(t, store)
	})
}

// TestDeliverIsAllOrNone: if one of several tenures has ended, no other one is delivered, and the call
// gives all of them back.
func TestDeliverIsAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := New(store, nil)
		defer c.Close()
		a, b := begun(t, c, "a").tenure, begun(t, c, "b").tenure
		b.grant.lose(errRevoked)
		if err := c.deliver(a, b); !errors.Is(err, ErrLost) {
			t.Errorf("deliver: %v; want ErrLost", err)
		}
		if a.stage != attached || b.stage != attached {
			t.Errorf("the stages are %d and %d; want %d", a.stage, b.stage, attached)
		}
		a.giveBack()
		b.giveBack()
		synctest.Wait()
		checkEmpty(t, store)
	})
}

// losing is a store that revokes "a" while it grants "b".
type losing struct{ reporter }

func (s *losing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.reporter.Acquire(ctx, req)
	if req.Name == "b" {
		s.revoke[0]()
	}
	return grant, err
}

// TestSetThatLostANameIsNotReturned: LockAll fails if a name was lost while the store granted the last one.
func TestSetThatLostANameIsNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &losing{reporter{Store: memlock.New()}}
		c := New(store, nil)
		defer c.Close()
		if leases, err := c.LockAll(t.Context(), []string{"a", "b"}, WithFair()); !errors.Is(err, ErrLost) {
			t.Errorf("LockAll: %v, %v; want ErrLost", leases, err)
		}
		synctest.Wait()
		checkEmpty(t, store.Store)
	})
}

// TestEndDuringAcquiredIsReportedAfterIt: a lease that is lost while the hook Acquired runs is reported as
// lost when that has returned.
func TestEndDuringAcquiredIsReportedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reporter{Store: memlock.New()}
		var events []string
		c := New(store, &Options{Hooks: Hooks{
			Acquired: func(Event) { store.revoke[0](); events = append(events, "acquired") },
			Lost:     func(Event) { events = append(events, "lost") },
		}})
		defer c.Close()
		lease := lockX(t, c, t.Context())
		if want := []string{"acquired", "lost"}; !slices.Equal(events, want) {
			t.Errorf("the events are %v; want %v", events, want)
		}
		_ = lease.Unlock(t.Context()) // it is lost
	})
}

// TestContextEndsBeforeTheHandOver: the context of a lease has ended before the next caller has the lock.
func TestContextEndsBeforeTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first := lockX(t, c, t.Context())
		next := lockXSoon(c, t.Context())
		g, ended := first.tenure.grant, false
		_, its := first.contextAndEnding()
		its.Follow(ending.New(func(error) {
			ended = true
			if g.status().held {
				t.Error("the next caller has the lock before the context has ended")
			}
		}))
		_ = first.Unlock(t.Context())
		if lease := <-next; lease.tenure.grant != g || !ended {
			t.Error("the lock was not handed over, or the context did not end")
		} else {
			_ = lease.Unlock(t.Context())
		}
	})
}

// TestSetGetsTheSlotAndNoTenure: a grant is not handed over to a set of names, which gets the slot instead.
func TestSetGetsTheSlotAndNoTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first := lockX(t, c, t.Context())
		place := c.queue.Wait("x", occupant{waits: true}, func(w *waiter) { w.settings = c.settings(nil) })
		_ = first.Unlock(t.Context())
		<-place.Admitted()
		if slot := place.Slot(); slot == nil {
			t.Error("the lock was handed over to a set of names")
		} else {
			slot.Leave(false)
		}
	})
}

// TestClosedClientHandsNothingOver: Close releases every lock, and admits the callers that wait, which then
// see that the client is closed.
func TestClosedClientHandsNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first := lockX(t, c, t.Context())
		next := lockXSoon(c, t.Context())
		rest := makeIdle(first)
		c.calls.closed.Store(true) // as Close does first
		if first.tenure.grant.handOver() {
			t.Error("the lock was handed over")
		}
		_ = rest()
		if lease := <-next; lease != nil {
			t.Error("a closed client has a lease")
		}
	})
}

// TestCallWhoseLeaseEndedEarlyHasItsTime: the attempt that follows a lease that ended before its call
// returned has a RequestTimeout of its own, however long the call has waited for an answer before.
func TestCallWhoseLeaseEndedEarlyHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		b := begun(t, c, "x")
		_ = b.call.timeForAnswer()
		<-time.After(c.requestTimeout / 2)
		b.tenure.grant.lose(errRevoked)
		if err := b.deliver(); err != errEndedEarly { //nolint:errorlint
			t.Errorf("deliver: %v", err)
		}
		if left := b.call.timeLeft(); left != c.requestTimeout {
			t.Errorf("the next attempt has %v; want %v", left, c.requestTimeout)
		}
	})
}

// TestSharedGrantIsOffered: a new shared grant is shared with the first caller in the local queue if that
// wants the same, and is not a set of names. Every other caller gets the slot.
func TestSharedGrantIsOffered(t *testing.T) {
	for name, test := range map[string]struct {
		opts  []Option
		inSet bool
		want  bool
	}{
		"equal terms":         {opts: []Option{WithShared()}, want: true},
		"an exclusive caller": {},
		"another TTL":         {opts: []Option{WithShared(), WithTTL(time.Minute)}},
		"a set":               {opts: []Option{WithShared()}, inSet: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(memlock.New(), nil)
			defer c.Close()
			b := bidFor(t, c, "x", c.settings([]Option{WithShared()}))
			b.occupy()
			place := c.queue.Wait("x", occupant{waits: true}, func(next *waiter) {
				next.settings, next.accepts, next.tenure.callerCtx = c.settings(test.opts), !test.inSet, t.Context()
			})
			if err := b.attempt(); err != nil {
				t.Fatal(err)
			}
			<-place.Admitted()
			slot := place.Slot()
			if shared := slot == nil; shared != test.want {
				t.Errorf("shared: %v; want %v", shared, test.want)
			}
			if slot != nil {
				slot.Leave(false)
			} else {
				_ = place.Waiter.tenure.first.Unlock(t.Context())
			}
			b.unlock()
		})
	}
}

// TestSharedGrantsAreForgotten: the last lease of a shared grant removes it from the grants that callers may
// share, and no newer one of the same name.
func TestSharedGrantsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first := lockX(t, c, t.Context(), WithShared())
		newer := lockX(t, c, t.Context(), WithShared(), WithTTL(time.Minute))
		_ = first.Unlock(t.Context())
		third := lockX(t, c, t.Context(), WithShared(), WithTTL(time.Minute))
		if third.tenure.grant != newer.tenure.grant {
			t.Error("the newer grant was forgotten")
		}
		_, _ = newer.Unlock(t.Context()), third.Unlock(t.Context())
		c.shared.Range(func(name, _ any) bool {
			t.Errorf("a grant of %q is kept", name)
			return true
		})
	})
}

// TestGrantNearItsEndIsNotShared: a shared caller asks the store if a grant has less than half of its TTL.
func TestGrantNearItsEndIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		terms := []Option{WithShared(), WithTTL(60 * time.Millisecond), WithMargin(20 * time.Millisecond)}
		first := lockX(t, c, t.Context(), terms...)
		<-time.After(15 * time.Millisecond) // before the first renewal
		second := lockX(t, c, t.Context(), terms...)
		if second.tenure.grant == first.tenure.grant {
			t.Errorf("a grant that is trusted for %v is shared", second.Remaining())
		}
		_, _ = first.Unlock(t.Context()), second.Unlock(t.Context())
	})
}

// TestFixedLeaseIsNotShared: a shared lease of fixed length has a grant of its own, which is not renewed.
func TestFixedLeaseIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		before := lockX(t, c, t.Context(), WithShared())
		fixed := lockX(t, c, t.Context(), WithShared(), WithFixedTTL(DefaultTTL))
		after := lockX(t, c, t.Context(), WithShared())
		if g := fixed.tenure.grant; g == before.tenure.grant || g == after.tenure.grant {
			t.Error("a lease that is renewed and one of fixed length have one grant")
		}
		_, _, _ = before.Unlock(t.Context()), fixed.Unlock(t.Context()), after.Unlock(t.Context())
	})
}

// TestUnlockOfASharedLeaseReportsALoss: Unlock of a lease that is not the last one of its grant does not ask
// the store. It checks the clock.
func TestUnlockOfASharedLeaseReportsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first, last := lockX(t, c, t.Context(), WithShared()), lockX(t, c, t.Context(), WithShared())
		if first.tenure.grant != last.tenure.grant {
			t.Fatal("the grant is not shared")
		}
		c.watchdog.Forget(&first.tenure.grant.Hold) // the watchdog does not declare it lost
		<-time.After(DefaultTTL)
		for _, lease := range []*Lease{first, last} {
			if err := lease.Unlock(t.Context()); !errors.Is(err, ErrNotHeld) {
				t.Errorf("Unlock: %v; want ErrNotHeld", err)
			}
		}
	})
}
