package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// passCounter is a remote store that counts calls and lets a test act during a hand-over.
type passCounter struct {
	*memlock.Store
	acquires, releases, passes atomic.Int64
	during                     func() // is called before a hand-over; may be nil
}

func (s *passCounter) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Local = false
	return traits
}

func (s *passCounter) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.acquires.Add(1)
	return s.Store.Acquire(ctx, req)
}

func (s *passCounter) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	return s.Store.Release(ctx, grant)
}

func (s *passCounter) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	s.passes.Add(1)
	if s.during != nil {
		s.during()
	}
	return s.Store.Pass(ctx, grant, req)
}

// lockResult is the result of a Lock.
type lockResult struct {
	lease *dlock.Lease
	err   error
}

// handOver unlocks a lock while another goroutine of the process waits for it. It returns
// what each of them got.
func handOver(t *testing.T, c *dlock.Client, ctx context.Context) (first *dlock.Lease, next lockResult, unlocked error) {
	t.Helper()
	first = mustLock(t, c, t.Context(), "x")
	done := make(chan lockResult, 1)
	go func() {
		lease, err := c.Lock(ctx, "x")
		done <- lockResult{lease, err}
	}()
	synctest.Wait()
	unlocked = first.Unlock(t.Context())
	return first, <-done, unlocked
}

// The next waiter of the process gets the lock in the step in which the holder releases it.
func TestHandOverTakesOneStep(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		first, next, unlocked := handOver(t, c, t.Context())
		if unlocked != nil || next.err != nil {
			t.Fatalf("Unlock: %v, then Lock: %v", unlocked, next.err)
		}
		if next.lease.Token() <= first.Token() {
			t.Errorf("token %d after %d", next.lease.Token(), first.Token())
		}
		if a, p, r := store.acquires.Load(), store.passes.Load(), store.releases.Load(); a != 1 || p != 1 || r != 0 {
			t.Errorf("%d acquired, %d handed over, %d released; want 1, 1, 0", a, p, r)
		}
		time.Sleep(10 * dlock.DefaultTTL) // it is renewed
		if err := next.lease.Context().Err(); err != nil {
			t.Errorf("the lock that was handed over is lost: %v", context.Cause(next.lease.Context()))
		}
		mustUnlock(t, next.lease)
	})
}

// A waiter that gives up during the hand-over leaves nothing behind, and the waiter behind
// it gets the lock.
func TestHandOverToAWaiterThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		behind := make(chan lockResult, 1)
		store.during = func() {
			store.during = nil
			go func() {
				lease, err := c.Lock(t.Context(), "x")
				behind <- lockResult{lease, err}
			}()
			synctest.Wait()
			cancel()
			synctest.Wait()
		}
		_, next, unlocked := handOver(t, c, ctx)
		if unlocked != nil || !errors.Is(next.err, context.Canceled) {
			t.Errorf("Unlock: %v, then a Lock that was cancelled: %v", unlocked, next.err)
		}
		start := time.Now()
		got := <-behind
		if got.err != nil {
			t.Fatal(got.err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the waiter behind had the lock after %v; want that the vain hand-over is undone", took)
		}
		mustUnlock(t, got.lease)
	})
}

// Whether or not the hand-over happened, the lock is unlocked, and the next waiter gets it
// without waiting for a TTL.
func TestHandOverOfUnknownOutcome(t *testing.T) {
	for _, happens := range []bool{true, false} {
		t.Run(fmt.Sprint(happens), func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c := dlock.New(&unansweredPass{inner, happens}, nil)
				defer c.Close()
				start := time.Now()
				first, next, unlocked := handOver(t, c, t.Context())
				if unlocked != nil || next.err != nil {
					t.Fatalf("Unlock: %v, then Lock: %v", unlocked, next.err)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("the next waiter had it after %v", took)
				}
				if next.lease.Token() <= first.Token() {
					t.Errorf("token %d after %d", next.lease.Token(), first.Token())
				}
				mustUnlock(t, next.lease)
			})
		})
	}
}

// unansweredPass loses the request or the reply of every hand-over.
type unansweredPass struct {
	*memlock.Store
	happens bool
}

func (s *unansweredPass) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	if s.happens {
		_, _ = s.Store.Pass(ctx, grant, req)
	}
	return driver.Grant{}, fmt.Errorf("%w: nothing comes back", driver.ErrUnreachable)
}

// Undoing an unanswered hand-over does not touch the lock of the next waiter, which asks the
// store with another owner.
func TestLateHandOverDoesNotReachTheNextOwner(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &unansweredPasses{passCounter: passCounter{Store: inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		_, next, unlocked := handOver(t, c, t.Context())
		if unlocked != nil || next.err != nil {
			t.Fatalf("Unlock: %v, then Lock: %v", unlocked, next.err)
		}
		for _, owner := range store.released { // the releases arrive once more, late
			_ = inner.Release(t.Context(), driver.Grant{Name: "x", Owner: owner})
		}
		other := dlock.New(inner, nil)
		defer other.Close()
		if lease, err := other.TryLock(t.Context(), "x"); err == nil {
			t.Error("a release that was repeated late freed the next caller's lock")
			mustUnlock(t, lease)
		}
		mustUnlock(t, next.lease)
	})
}

// unansweredPasses loses every hand-over, and records which owners were released.
type unansweredPasses struct {
	passCounter
	released []driver.Owner
}

func (s *unansweredPasses) Pass(context.Context, driver.Grant, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, fmt.Errorf("%w: nothing comes back", driver.ErrUnreachable)
}

func (s *unansweredPasses) Release(ctx context.Context, grant driver.Grant) error {
	s.released = append(s.released, grant.Owner)
	return s.Store.Release(ctx, grant)
}

// Unlock reports the loss, and the next waiter asks the store.
func TestHandOverOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		store.during = func() {
			store.during = nil
			for info := range inner.List(t.Context(), "") {
				if err := inner.Break(t.Context(), info.Name, info.Token); err != nil {
					t.Error(err)
				}
			}
		}
		_, next, unlocked := handOver(t, c, t.Context())
		if !errors.Is(unlocked, dlock.ErrNotHeld) {
			t.Errorf("Unlock of what was lost: %v", unlocked)
		}
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustUnlock(t, next.lease)
	})
}

// A waiter asks the store again if the lock was lost during the hand-over.
func TestHandedOverLockIsLostBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(&losingPasser{reporting{Store: inner}}, nil)
		defer c.Close()
		_, next, err := handOver(t, c, t.Context())
		if err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if next.err != nil {
			t.Fatalf("Lock: %v", next.err)
		}
		if err := next.lease.Context().Err(); err != nil {
			t.Errorf("the lease has ended: %v", err)
		}
		mustUnlock(t, next.lease)
	})
}

// losingPasser loses a lock during the hand-over, and reports the loss.
type losingPasser struct{ reporting }

func (s *losingPasser) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	next, err := s.Store.Pass(ctx, grant, req)
	if err == nil {
		err = s.Store.Release(ctx, next)
		req.Lost()
	}
	return next, err
}

// A client that is closed during a hand-over holds no lock afterwards.
func TestHandOverWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c := dlock.New(store, nil)
		closed := make(chan error, 1)
		store.during = func() {
			go func() { closed <- c.Close() }()
			synctest.Wait()
		}
		_, next, unlocked := handOver(t, c, t.Context())
		if unlocked != nil {
			t.Errorf("Unlock: %v", unlocked)
		}
		if next.err == nil {
			if err := next.lease.Context().Err(); err == nil {
				t.Error("a lease of a client that was closed lives")
			}
		} else if !errors.Is(next.err, dlock.ErrClosed) {
			t.Errorf("Lock: %v; want that the client is closed", next.err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		for info := range inner.List(t.Context(), "") {
			t.Errorf("%q is left behind", info.Name)
		}
	})
}

// A waiter for several names takes all of them in one step.
func TestNoHandOverToASet(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		first := mustLock(t, c, t.Context(), "x")
		done := make(chan error, 1)
		go func() {
			leases, err := c.LockAll(t.Context(), []string{"x", "y"})
			if err == nil {
				err = leases.Unlock(t.Context())
			}
			done <- err
		}()
		synctest.Wait()
		mustUnlock(t, first)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := store.passes.Load(); n != 0 {
			t.Errorf("%d locks were handed over", n)
		}
	})
}

// Other processes get the lock although a goroutine of this process always waits.
func TestHandOverEndsWithTheTimeSlice(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passCounter{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		got := contend(t, "x", c, 4, other, 1)
		if got[1] == 0 || got[0] > 20*got[1] {
			t.Errorf("4 goroutines had the lock %d times, a goroutine of another process %d times", got[0], got[1])
		}
		if store.passes.Load() == 0 {
			t.Error("no lock was handed over")
		}
	})
}

// TestTryLockDuringAHandOver: a TryLock that comes while the lock is handed over waits for the
// outcome, and then names the new holder.
func TestTryLockDuringAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		counter := &passCounter{Store: store}
		c := dlock.New(counter, nil)
		defer c.Close()
		tried := make(chan error, 1)
		counter.during = func() {
			go func() { _, err := c.TryLock(t.Context(), "x"); tried <- err }()
			time.Sleep(time.Second) // virtual
		}
		_, next, unlocked := handOver(t, c, t.Context())
		if unlocked != nil || next.err != nil || counter.passes.Load() != 1 {
			t.Fatalf("Unlock: %v; Lock: %v; %d hand-overs", unlocked, next.err, counter.passes.Load())
		}
		start := time.Now()
		if err := <-tried; !errors.Is(err, dlock.ErrHeld) || time.Since(start) > time.Millisecond {
			t.Errorf("TryLock: %v, %v after the hand-over; want ErrHeld at once", err, time.Since(start))
		}
		mustUnlock(t, next.lease)
	})
}
