package dlock_test

import (
	"context"
	"errors"
	"os"
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
			t.Errorf("it took %v", waited)
		}
		n.setCut(false)
	})
}

// Who already waits rides out an outage that is shorter than the TTL, and is
// told of a longer one.
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

// Those who queue behind each other are told of a dead store together.
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
			t.Errorf("the last one was told after %v", took)
		}
		n.setCut(false)
		mustUnlock(t, lease)
	})
}

// Nobody is said to have the lock who was not seen to have it.
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

// Whoever comes while an attempt is being undone that was cancelled before the
// store answered is told so, and not that it was cancelled itself.
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

// refusing is a store that refuses for a reason of its own, and takes its time to
// release.
type refusing struct {
	*memlock.Store
	reason error
}

func (r refusing) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.reason
}

func (r refusing) Release(ctx context.Context, grant driver.Grant) error {
	time.Sleep(time.Second)
	return r.Store.Release(ctx, grant)
}

// Whoever comes while an attempt is undone that the store refused for good hears
// the reason, and not that somebody has the lock.
func TestTryLockBehindARejectedAttemptReturnsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		reason := errors.New("no permission")
		c := dlock.New(refusing{store, reason}, nil)
		defer c.Close()
		for range 2 {
			if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, reason) || errors.Is(err, dlock.ErrHeld) {
				t.Errorf("TryLock: %v; want %v", err, reason)
			}
		}
	})
}

// A wait that ends on a store that does not answer says both.
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
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Lock: %v; want DeadlineExceeded and ErrUnreachable", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// What a process has heard of a store in an outage is forgotten after it, also
// by those who lock several names at once.
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
		go func() { // behind it
			lease, err := c.Lock(t.Context(), "a")
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			waiting <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll: %v", err)
		}
		n.setCut(false)
		mustUnlock(t, lease)
		if err := <-waiting; err != nil {
			t.Errorf("Lock long after the outage: %v", err)
		}
	})
}

// Calls that follow each other on a store that never answered fail in bounded
// time, also those that find the attempt of another call being undone.
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

// TestCallersDeadlineIsNotAnOutage: when the caller's own time is up, the store is not to
// blame, whoever notices first.
func TestCallersDeadlineIsNotAnOutage(t *testing.T) {
	c := dlock.New(punctual{memlock.New()}, nil)
	defer c.Close()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := c.Lock(ctx, "a")
		cancel()
		if errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lock with a deadline of its own: %v; want DeadlineExceeded alone", err)
		}
	}
}

// punctual is a store whose connection notices a deadline before the context does.
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
