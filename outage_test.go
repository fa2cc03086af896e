package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	for _, outage := range []time.Duration{20 * time.Second, 2 * time.Minute} {
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

// rejecting is a store that rejects acquisitions, and is slow to release.
type rejecting struct {
	*memlock.Store
	reason error
}

func (r rejecting) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.reason
}

func (r rejecting) Release(ctx context.Context, grant driver.Grant) error {
	time.Sleep(time.Second)
	return r.Store.Release(ctx, grant)
}

// TryLock behind an attempt that the store rejected returns the reason, not that the lock is
// held.
func TestTryLockBehindARejectedAttemptReturnsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		reason := errors.New("no permission")
		c := dlock.New(rejecting{store, reason}, nil)
		defer c.Close()
		for range 2 {
			if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, reason) || errors.Is(err, dlock.ErrHeld) {
				t.Errorf("TryLock: %v; want %v", err, reason)
			}
		}
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

// prepared counts releases, and answers each call with the error that is set for it.
type prepared struct {
	*memlock.Store
	acquire  error // nil lets the store answer
	all      error
	release  error
	releases atomic.Int64
}

func (s *prepared) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.acquire != nil {
		return driver.Grant{}, s.acquire
	}
	return s.Store.Acquire(ctx, req)
}

func (s *prepared) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if s.all != nil {
		return nil, s.all
	}
	return s.Store.AcquireAll(ctx, reqs)
}

func (s *prepared) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	if s.release != nil {
		return s.release
	}
	return s.Store.Release(ctx, grant)
}

// An attempt is undone unless its error proves that it changed nothing.
func TestOnlyAttemptsOfUnknownOutcomeAreUndone(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		err      error
		releases int64
	}{
		"unsupported": {fmt.Errorf("%w: in a cluster", driver.ErrUnsupported), 0},
		"bad TTL":     {driver.ErrBadTTL, 0},
		"not sent":    {driver.NotSent(fmt.Errorf("%w: %w", driver.ErrUnreachable, refused)), 0},
		"wrapped":     {fmt.Errorf("acquire: %w", driver.NotSent(driver.ErrUnreachable)), 0},
		"one of many": {errors.Join(driver.NotSent(driver.ErrUnreachable), driver.ErrUnreachable), 1},
		"of a member": {errors.Join(fmt.Errorf("member 1: %w", driver.ErrUnsupported), errors.New("member 2")), 1},
		"unreachable": {driver.ErrUnreachable, 1},
		"other":       {errors.New("no space"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &prepared{Store: store, acquire: test.err}
				c := dlock.New(s, nil)
				if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, test.err) {
					t.Errorf("TryLock: %v; want %v", err, test.err)
				}
				_ = c.Close()
				if got := s.releases.Load(); got != test.releases {
					t.Errorf("%d releases; want %d", got, test.releases)
				}
			})
		})
	}
}

// A store that cannot acquire a set in one step has done nothing, so that nothing is undone.
func TestUnsupportedBatchIsNotUndone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &prepared{Store: store, all: driver.ErrUnsupported}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "b")
		if _, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithWait(0)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("LockAll: %v; want ErrHeld", err)
		}
		_ = c.Close()
		if got := s.releases.Load(); got != 1 {
			t.Errorf("%d releases; want one, of the name that was acquired", got)
		}
		mustUnlock(t, lease)
	})
}

// A store that rejects the user, or was closed, rejects the release as well: it is not asked
// again and again while other callers wait for the outcome.
func TestRejectedReleaseIsNotRepeated(t *testing.T) {
	for _, reason := range []error{driver.ErrDenied, driver.ErrClosed} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			s := &prepared{Store: store, acquire: reason, release: reason}
			c := dlock.New(s, nil)
			start := time.Now()
			for range 2 {
				if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, reason) {
					t.Errorf("TryLock: %v; want %v", err, reason)
				}
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("two calls took %v; the store answered at once", took)
			}
			_ = c.Close()
			if got := s.releases.Load(); got != 2 {
				t.Errorf("%d releases; want one for each attempt", got)
			}
		})
	}
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
			c := dlock.New(&scripted{Store: store, decide: func(int) bool { return false }}, nil)
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
		c := dlock.New(&slowStore{Store: store, delay: 900 * time.Millisecond}, nil)
		defer c.Close()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { mustUnlock(t, mustLock(t, c, t.Context(), "x")) })
		}
		all.Wait()
	})
}
