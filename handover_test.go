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

// passing is a store far away whose Pass can be watched and disturbed.
type passing struct {
	*memlock.Store
	acquires, releases, passes atomic.Int64
	during                     func() // is called before a lock is passed on; may be nil
}

func (s *passing) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Local = false
	return traits
}

func (s *passing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.acquires.Add(1)
	return s.Store.Acquire(ctx, req)
}

func (s *passing) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	return s.Store.Release(ctx, grant)
}

func (s *passing) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	s.passes.Add(1)
	if s.during != nil {
		s.during()
	}
	return s.Store.Pass(ctx, grant, req)
}

// waiting is somebody in the queue behind a lease.
type waiting struct {
	lease *dlock.Lease
	err   error
}

// passOn lets a client that has the lock unlock it while somebody else of the process
// waits. It returns what each of them got.
func passOn(t *testing.T, c *dlock.Client, ctx context.Context) (first *dlock.Lease, next waiting, unlocked error) {
	t.Helper()
	first = mustLock(t, c, t.Context(), "x")
	done := make(chan waiting, 1)
	go func() {
		lease, err := c.Lock(ctx, "x")
		done <- waiting{lease, err}
	}()
	synctest.Wait()
	unlocked = first.Unlock(t.Context())
	return first, <-done, unlocked
}

// TestHandOverTakesOneStep: the next one of the process gets the lock in the step in which the one
// before gives it up.
func TestHandOverTakesOneStep(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		first, next, unlocked := passOn(t, c, t.Context())
		if unlocked != nil || next.err != nil {
			t.Fatalf("Unlock: %v, then Lock: %v", unlocked, next.err)
		}
		if next.lease.Token() <= first.Token() {
			t.Errorf("token %d after %d", next.lease.Token(), first.Token())
		}
		if a, p, r := store.acquires.Load(), store.passes.Load(), store.releases.Load(); a != 1 || p != 1 || r != 0 {
			t.Errorf("%d acquired, %d passed, %d released; want 1, 1, 0", a, p, r)
		}
		time.Sleep(10 * dlock.DefaultTTL) // it is renewed like any other
		if err := next.lease.Context().Err(); err != nil {
			t.Errorf("the lock that was passed on is lost: %v", context.Cause(next.lease.Context()))
		}
		mustUnlock(t, next.lease)
	})
}

// TestHandOverToAWaiterThatLeft: whoever gives up just then leaves nothing behind, and the one
// behind gets the lock.
func TestHandOverToAWaiterThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		behind := make(chan waiting, 1)
		store.during = func() {
			store.during = nil
			go func() {
				lease, err := c.Lock(t.Context(), "x")
				behind <- waiting{lease, err}
			}()
			synctest.Wait()
			cancel()
			synctest.Wait()
		}
		_, next, unlocked := passOn(t, c, ctx)
		if unlocked != nil || !errors.Is(next.err, context.Canceled) {
			t.Errorf("Unlock: %v, then a Lock that was cancelled: %v", unlocked, next.err)
		}
		start := time.Now()
		got := <-behind
		if got.err != nil {
			t.Fatal(got.err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the caller behind had the lock after %v; what was handed over in vain must be given back", took)
		}
		mustUnlock(t, got.lease)
	})
}

// TestHandOverOfUnknownOutcome: whether or not it happened, the lock is unlocked, and the
// next one gets it without waiting for a TTL.
func TestHandOverOfUnknownOutcome(t *testing.T) {
	for _, happens := range []bool{true, false} {
		t.Run(fmt.Sprint(happens), func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c := dlock.New(&lostPass{inner, happens}, nil)
				defer c.Close()
				start := time.Now()
				first, next, unlocked := passOn(t, c, t.Context())
				if unlocked != nil || next.err != nil {
					t.Fatalf("Unlock: %v, then Lock: %v", unlocked, next.err)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("the next one had it after %v", took)
				}
				if next.lease.Token() <= first.Token() {
					t.Errorf("token %d after %d", next.lease.Token(), first.Token())
				}
				mustUnlock(t, next.lease)
			})
		})
	}
}

// lostPass loses what passes a lock on, or the reply to it.
type lostPass struct {
	*memlock.Store
	happens bool
}

func (s *lostPass) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	if s.happens {
		_, _ = s.Store.Pass(ctx, grant, req)
	}
	return driver.Grant{}, fmt.Errorf("%w: nothing comes back", driver.ErrUnreachable)
}

// What is undone of a hand-over without an answer must not touch the acquisition of
// the next caller, which asks the store itself: it has another owner.
func TestLateHandOverDoesNotReachTheNextOwner(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &latePass{passing: passing{Store: inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		_, next, unlocked := passOn(t, c, t.Context())
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

// latePass loses every hand-over, and notes who was released.
type latePass struct {
	passing
	released []driver.Owner
}

func (s *latePass) Pass(context.Context, driver.Grant, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, fmt.Errorf("%w: nothing comes back", driver.ErrUnreachable)
}

func (s *latePass) Release(ctx context.Context, grant driver.Grant) error {
	s.released = append(s.released, grant.Owner)
	return s.Store.Release(ctx, grant)
}

// TestHandOverOfALostLock: Unlock says so, and the next one asks the store itself.
func TestHandOverOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
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
		_, next, unlocked := passOn(t, c, t.Context())
		if !errors.Is(unlocked, dlock.ErrNotHeld) {
			t.Errorf("Unlock of what was lost: %v", unlocked)
		}
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustUnlock(t, next.lease)
	})
}

// TestHandedOverLockIsLostBeforeItBegins: who waits for a lock that was lost on the way
// asks for it again.
func TestHandedOverLockIsLostBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(&losing{reporting{Store: inner}}, nil)
		defer c.Close()
		_, next, err := passOn(t, c, t.Context())
		if err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if next.err != nil {
			t.Fatalf("Lock: %v", next.err)
		}
		if err := next.lease.Context().Err(); err != nil {
			t.Errorf("the lease is over: %v", err)
		}
		mustUnlock(t, next.lease)
	})
}

// losing is a store that loses a lock while it is passed on, and then knows it.
type losing struct{ reporting }

func (s *losing) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	next, err := s.Store.Pass(ctx, grant, req)
	if err == nil {
		err = s.Store.Release(ctx, next)
		req.Lost()
	}
	return next, err
}

// TestHandOverWhileClosing: a client that is closed in that moment keeps nothing.
func TestHandOverWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
		c := dlock.New(store, nil)
		closed := make(chan error, 1)
		store.during = func() {
			go func() { closed <- c.Close() }()
			synctest.Wait()
		}
		_, next, unlocked := passOn(t, c, t.Context())
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

// TestNoHandOverToASet: who wants several names at once takes them at once.
func TestNoHandOverToASet(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
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
			t.Errorf("%d locks were passed on", n)
		}
	})
}

// TestHandOverEndsWithTheTimeSlice: others get their turn although somebody of this process always
// waits.
func TestHandOverEndsWithTheTimeSlice(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &passing{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		got := contend(t, "x", c, 4, other, 1)
		if got[1] == 0 || got[0] > 20*got[1] {
			t.Errorf("4 goroutines had it %d times, one of another process %d times", got[0], got[1])
		}
		if store.passes.Load() == 0 {
			t.Error("nothing was passed on")
		}
	})
}
