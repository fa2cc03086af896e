package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func TestUnreachableStoreIsReportedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		start := time.Now()
		_, err := c.Lock(t.Context(), "x")
		if !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("Lock: %v", err)
		}
		if waited := time.Since(start); waited > dlock.DefaultRequestTimeout {
			t.Errorf("Lock took %v", waited)
		}
		n.setCut(false)
	})
}

// A waiter rides out an outage that is shorter than the TTL, and returns an error after a
// longer one.
func TestWaiterRidesOutAShortOutage(t *testing.T) {
	for _, outage := range []time.Duration{28 * time.Second, 2 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				n := newNetwork(store)
				c, other := dlock.New(n, nil), dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				lease := mustLock(t, other, t.Context(), "x")
				result := make(chan error, 1)
				go func() {
					lease, err := c.Lock(t.Context(), "x")
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					result <- err
				}()
				time.Sleep(40 * time.Second)
				n.setCut(true)
				time.Sleep(outage / 2)
				mustUnlock(t, lease)
				time.Sleep(outage / 2)
				n.setCut(false)
				err := <-result
				if outage < dlock.DefaultTTL && err != nil {
					t.Errorf("an outage of %v: %v", outage, err)
				}
				if outage > dlock.DefaultTTL && !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("an outage of %v: %v; want ErrUnreachable", outage, err)
				}
				synctest.Wait()
			})
		})
	}
}

// Waiters in the local queue learn of an outage together, not one after the other.
func TestQueueLearnsOfAnOutageTogether(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c, other := dlock.New(n, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		n.setCut(true)
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 3*dlock.DefaultTTL {
			t.Errorf("the last waiter returned after %v", took)
		}
		n.setCut(false)
		mustUnlock(t, lease)
	})
}

// The error describes no holder if the store has not named one.
func TestWaitLimitInAnOutageIsUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		for _, limit := range []time.Duration{time.Second, time.Minute} {
			_, err := c.Lock(t.Context(), "x", dlock.WithWait(limit))
			_, all := c.LockAll(t.Context(), []string{"x", "y"}, dlock.WithWait(limit))
			for _, err := range []error{err, all} {
				if errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("with a limit of %v: %v; want ErrUnreachable", limit, err)
				}
			}
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// TryLock behind an unanswered attempt that was cancelled does not return the error of that
// cancellation.
func TestTryLockBehindACancelledAttemptIsUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "x"); errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("TryLock: %v", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// The error of a wait that is cancelled in an outage wraps the cause and ErrUnreachable.
func TestCancelledWaitInAnOutageWrapsBoth(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c, other := dlock.New(n, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		n.setCut(true)
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("TryLock: %v; want ErrUnreachable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Lock: %v; want DeadlineExceeded and ErrUnreachable", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// An outage is forgotten after it has ended, also by LockAll.
func TestOldOutageIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c, other := dlock.New(n, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "a")
		waiting := make(chan error)
		go func() { _, err := c.Lock(t.Context(), "a"); waiting <- err }()
		time.Sleep(time.Second)
		n.setCut(true)
		if err := <-waiting; !errors.Is(err, dlock.ErrUnreachable) {
			t.Fatalf("Lock in the outage: %v", err)
		}
		n.setCut(false)
		time.Sleep(time.Hour)

		ctx, cancel := context.WithCancel(t.Context())
		n.setCut(true) // an attempt that is not answered, and given up
		go func() { _, err := c.LockAll(ctx, []string{"a", "b"}); waiting <- err }()
		time.Sleep(time.Second)
		go func() { // a waiter behind it
			lease, err := c.Lock(t.Context(), "a")
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			waiting <- err
		}()
		synctest.Wait()
		n.setCut(false) // so that the attempt can be undone at once
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll: %v", err)
		}
		mustUnlock(t, lease)
		if err := <-waiting; err != nil {
			t.Errorf("Lock long after the outage: %v", err)
		}
	})
}

// Repeated calls to a store that never answered fail in bounded time, also if they wait until
// the attempt of another call is undone.
func TestRepeatedLocksInAnOutageAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		for i := range 3 {
			start := time.Now()
			if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Lock %d: %v; want ErrUnreachable", i+1, err)
			}
			if took := time.Since(start); took > dlock.DefaultRequestTimeout+time.Second {
				t.Errorf("Lock %d took %v; want about %v", i+1, took, dlock.DefaultRequestTimeout)
			}
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v; want ErrUnreachable", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 3*dlock.DefaultRequestTimeout {
			t.Errorf("20 calls at once took %v; want them to share what the first finds out", took)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// When the caller's deadline passes, the error does not blame the store, even if the store
// notices the deadline first.
func TestCallersDeadlineIsNotAnOutage(t *testing.T) {
	c := dlock.New(punctual{memlock.New()}, nil)
	defer c.Close()
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := c.Lock(ctx, strconv.Itoa(i)) // not behind an attempt that is being undone
		cancel()
		if errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lock with a deadline of its own: %v; want DeadlineExceeded alone", err)
		}
	}
}

// punctual is a store whose connection notices a deadline before the context ends.
type punctual struct{ driver.Store }

func (p punctual) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	at, _ := ctx.Deadline()
	for time.Now().Before(at) {
	}
	return driver.Grant{}, os.ErrDeadlineExceeded
}

func (p punctual) Traits() driver.Traits {
	t := p.Store.Traits()
	t.Local = false
	return t
}

// Every call takes one RequestTimeout at most if the store does not answer it, also if it
// first waits for the outcome of another call of the process.
func TestEveryCallInAnOutageTakesOneRequestTimeout(t *testing.T) {
	lock := func(opts ...dlock.Option) func(*dlock.Client, context.Context) error {
		return func(c *dlock.Client, ctx context.Context) error { _, err := c.Lock(ctx, "x", opts...); return err }
	}
	lockAll := func(c *dlock.Client, ctx context.Context) error {
		_, err := c.LockAll(ctx, []string{"w", "x"})
		return err
	}
	for name, call := range map[string]func(*dlock.Client, context.Context) error{
		"Lock": lock(), "TryLock": lock(dlock.WithWait(0)), "WithWait": lock(dlock.WithWait(time.Hour)), "LockAll": lockAll,
	} {
		for _, before := range []time.Duration{0, 300 * time.Millisecond, 4 * time.Second} {
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memlock.Store) {
					n := newNetwork(store)
					c := dlock.New(n, nil)
					defer c.Close()
					n.setCut(true)
					if before > 0 { // an attempt that is being undone when the calls begin
						ctx, cancel := context.WithTimeout(t.Context(), before)
						defer cancel()
						_, _ = c.TryLock(ctx, "x")
					}
					var all sync.WaitGroup
					for range 3 {
						all.Go(func() {
							start := time.Now()
							if err := call(c, t.Context()); !errors.Is(err, dlock.ErrUnreachable) || errors.Is(err, dlock.ErrHeld) {
								t.Errorf("%v; want ErrUnreachable", err)
							}
							if took := time.Since(start); took > dlock.DefaultRequestTimeout+10*time.Millisecond {
								t.Errorf("the call took %v", took)
							}
						})
					}
					all.Wait()
					n.setCut(false)
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// A call that waited for the outcome of another has that much less time for its own attempt,
// if the store answers releases but no attempt.
func TestWaitForAnotherOutcomeShortensTheAttempt(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			c := dlock.New(&scripted{remote: remote{store}, decide: func(int) bool { return false }}, nil)
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			go func() { _, _ = c.Lock(ctx, "x") }()
			synctest.Wait() // its attempt is under way
			start := time.Now()
			if _, err := c.Lock(t.Context(), "x", dlock.WithWait(limit)); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Lock: %v; want ErrUnreachable", err)
			}
			if took := time.Since(start); took > dlock.DefaultRequestTimeout+100*time.Millisecond {
				t.Errorf("with a limit of %v, Lock took %v; want one RequestTimeout", limit, took)
			}
		})
	}
}

// Callers that wait for each other on a slow store are not in an outage.
func TestSlowStoreIsNotAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&slowStore{remote: remote{store}, delay: 900 * time.Millisecond}, nil)
		defer c.Close()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { mustUnlock(t, mustLock(t, c, t.Context(), "x")) })
		}
		all.Wait()
	})
}
