package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// remote is a store whose calls are bounded in time, as those of a server are.
type remote struct{ *memlock.Store }

func (r remote) Traits() driver.Traits {
	traits := r.Store.Traits()
	traits.Local = false
	return traits
}

// If the lock that was handed over to a waiter cannot be used, the waiter has a RequestTimeout to
// ask the store, however long it has waited in the process.
func TestWaiterWithAHandedOverLockHasTimeToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(remote{memlock.New()}, nil)
		defer c.Close()
		s := c.settings(nil)
		holder, h := c.newHold(t.Context(), "x", s, nil), c.newHold(t.Context(), "x", s, nil)
		holder.tryEnter()
		lc := lockCall{client: c, settings: s, ctx: t.Context()}
		entered := make(chan error)
		go func() { entered <- lc.enter(h) }()
		synctest.Wait() // h waits behind an attempt without an outcome
		holder.outcome.announce()
		<-time.After(time.Minute)
		holder.slot.Load().HandOver(func(next *hold) bool {
			next.received = &handedOver{}
			return true
		})
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		if left := lc.timeLeft(); left != c.requestTimeout {
			t.Errorf("the waiter has %v for its attempt; want %v", left, c.requestTimeout)
		}
		h.leaveSlot()
	})
}

// unanswering is a store that does not answer the next attempts.
type unanswering struct {
	remote
	attempts *int
}

func (u unanswering) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if *u.attempts > 0 {
		*u.attempts--
		return driver.Grant{}, ErrUnreachable
	}
	return u.remote.Acquire(ctx, req)
}

// If the permit that was handed over to a waiter cannot be used, the waiter survives an outage, as every
// waiter does for which the store has answered: it has no slot that remembers the answer.
func TestWaiterWithAHandedOverPermitSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := 3
		c := New(unanswering{remote{memlock.New()}, &outage}, nil)
		defer c.Close()
		s := c.settings([]Option{WithLimit(1)})
		occupant, h := c.newHold(t.Context(), "x", s, nil), c.newHold(t.Context(), "x", s, nil)
		occupant.tryEnter()
		defer occupant.leaveSlot()
		occupant.refusal.Store(&driver.HeldError{Name: "x", Mode: s.mode})
		lc := lockCall{client: c, settings: s, ctx: t.Context()}
		acquired := make(chan error)
		go func() { acquired <- lc.acquire(h) }()
		<-time.After(time.Minute) // h waits behind the occupant, which waits for a permit
		c.queue.Serve("x", func(next *hold) bool {
			next.received = &handedOver{token: 1} // of a grant that has ended
			return true
		})
		if err := <-acquired; err != nil || outage > 0 {
			t.Errorf("a waiter with a permit that has ended: %v, after %d attempts without an answer; want nil after 3", err, 3-outage)
		}
	})
}

// A call whose lease Close has ended leaves the state of the slot alone: the next caller of this
// process may own the slot already.
func TestClosedCallLeavesTheSlotAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		s := c.settings(nil)
		h := c.newHold(t.Context(), "x", s, nil)
		h.tryEnter()
		slot := h.slot.Load()
		sent, err := h.attempt(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c.calls.closed.Store(true)
		h.end(ErrClosed) // by Close, which then releases the lock
		closed := h.startLease(sent)
		outage := errors.New("no answer to the release")
		slot.State.Unanswered(1, outage) // by Close, for the next caller
		lc := lockCall{client: c, settings: s, ctx: t.Context()}
		if err := lc.beforeRetry(h, closed); !errors.Is(err, ErrClosed) {
			t.Errorf("the call: %v; want ErrClosed", err)
		}
		if got := slot.State.OutageTooLong(1+DefaultTTL, DefaultTTL); !errors.Is(got, outage) {
			t.Errorf("the next caller finds the outage %v; want %v", got, outage)
		}
		_ = c.Close()
	})
}

// If Close ends a lock before its call returns, the call fails, and neither hook reports the lock.
func TestHooksBalanceWhenCloseMeetsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []string{"Close", "the call"} {
			var acquired, released int
			c := New(memlock.New(), &Options{Hooks: Hooks{
				Acquired: func(Event) { acquired++ },
				Released: func(Event) { released++ },
			}})
			s := c.settings(nil)
			h := c.newHold(t.Context(), "x", s, nil)
			h.tryEnter()
			sent, err := h.attempt(t.Context(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if first == "Close" {
				c.watchdog.Watch(&h.Hold, sent) // by startLease, which has not seen yet that the client is closed
				_ = c.Close()
			}
			c.calls.closed.Store(true)
			lc := lockCall{client: c, settings: s, ctx: t.Context()}
			if err := lc.report(h, h.startLease(sent)); !errors.Is(err, ErrClosed) {
				t.Errorf("%s is first: the call returns %v; want ErrClosed", first, err)
			}
			if acquired != released {
				t.Errorf("%s is first: the lock was acquired %d times and released %d times", first, acquired, released)
			}
			_ = c.Close()
		}
	})
}

// If Close meets a LockAll, either the call has all locks, or it fails and no hook reports one of them.
func TestHooksBalanceWhenCloseMeetsALockAll(t *testing.T) {
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	for range 300 {
		var acquired, released atomic.Int64
		c := New(memlock.New(), &Options{Hooks: Hooks{
			Acquired: func(Event) { acquired.Add(1) },
			Released: func(Event) { released.Add(1) },
		}})
		var call sync.WaitGroup
		call.Go(func() {
			if _, err := c.LockAll(t.Context(), names); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		time.Sleep(rand.N(500 * time.Microsecond))
		_ = c.Close()
		call.Wait()
		if acquired.Load() != released.Load() {
			t.Fatalf("locks were acquired %d times and released %d times", acquired.Load(), released.Load())
		}
	}
}
