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

// If the lock or permit that was handed over to a waiter was lost before the waiter ran, the waiter survives an outage, as every
// waiter does for which the store has answered, and has a RequestTimeout for its attempt.
func TestWaiterWithALostHandOverSurvivesAnOutage(t *testing.T) {
	for name, opts := range map[string][]Option{"exclusive": nil, "permit": {WithLimit(1)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outage := 0
				c := New(unanswering{remote{memlock.New()}, &outage}, nil)
				defer c.Close()
				s := c.settings(opts)
				first, err := c.Lock(t.Context(), "x", opts...)
				if err != nil {
					t.Fatal(err)
				}
				if s.mode.Limit > 0 {
					occupied := bidFor(t, c, "x", s)
					occupied.occupy()
					occupied.noteRefusal(&driver.HeldError{Name: "x", Mode: s.mode})
					defer occupied.leaveSlot()
				}
				g := first.tenure.grant
				b := bidFor(t, c, "x", s)
				entered := make(chan error)
				go func() { entered <- b.enter() }()
				synctest.Wait()
				_ = first.Unlock(t.Context())
				if err := <-entered; err != nil || b.tenure == nil {
					t.Fatal(err, b.tenure)
				}
				g.lose(errRevoked)
				outage = 3
				if err := b.deliver(); err != errEndedEarly { //nolint:errorlint
					t.Fatal(err)
				}
				if left := b.call.timeLeft(); left != c.requestTimeout {
					t.Errorf("the waiter has %v for its attempt; want %v", left, c.requestTimeout)
				}
				if s.mode.Limit > 0 { // the occupant stays: ask without the slot
					if err := b.attemptUntilGranted(); err != nil || outage > 0 {
						t.Errorf("%v, %d", err, outage)
					}
				} else if err := b.acquire(); err != nil || outage > 0 {
					t.Errorf("%v, %d", err, outage)
				}
				b.unlock()
			})
		})
	}
}

// A call whose grant Close has ended leaves the state of the slot alone: the next caller of this
// process may own the slot already.
func TestClosedCallLeavesTheSlotAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		s := c.settings(nil)
		b := bidFor(t, c, "x", s)
		b.occupy()
		slot := b.slot
		sent := b.mustGet(t)
		if err := b.begin(sent); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		outage := errors.New("no answer to the release")
		slot.State.Unanswered(1, outage) // by Close, for the next caller
		if err := b.deliver(); !errors.Is(err, ErrClosed) {
			t.Errorf("the call: %v; want ErrClosed", err)
		}
		if got := slot.State.OutageTooLong(1+DefaultTTL, DefaultTTL); !errors.Is(got, outage) {
			t.Errorf("the next caller finds the outage %v; want %v", got, outage)
		}
	})
}

// If Close ends a lock before its call returns, the call fails, and neither hook reports the lock.
func TestHooksBalanceWhenCloseMeetsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []string{"Close", "the call"} {
			var acquired, released int
			store := memlock.New()
			c := New(store, &Options{Hooks: Hooks{
				Acquired: func(Event) { acquired++ },
				Released: func(Event) { released++ },
			}})
			s := c.settings(nil)
			b := bidFor(t, c, "x", s)
			b.occupy()
			if err := b.begin(b.mustGet(t)); err != nil {
				t.Fatal(err)
			}
			if first == "Close" {
				_ = c.Close()
			}
			c.calls.closed.Store(true)
			if err := b.report(b.deliver()); !errors.Is(err, ErrClosed) {
				t.Errorf("%s is first: the call returns %v; want ErrClosed", first, err)
			}
			if acquired != released {
				t.Errorf("%s is first: the lock was acquired %d times and released %d times", first, acquired, released)
			}
			_ = c.Close()
			for info := range store.List(t.Context(), "") {
				t.Errorf("%q is left", info.Name)
			}
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
