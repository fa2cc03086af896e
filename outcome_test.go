package dlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// In an outage, a call whose context ends first returns that the outcome is unknown. No call
// returns that the lock is held.
func TestOutageIsNotReportedAsHeld(t *testing.T) {
	calls := map[string]func(context.Context, *dlock.Client) error{
		"TryLock": func(ctx context.Context, c *dlock.Client) error { _, err := c.TryLock(ctx, "x"); return err },
		"Lock":    func(ctx context.Context, c *dlock.Client) error { _, err := c.Lock(ctx, "x"); return err },
		"fair": func(ctx context.Context, c *dlock.Client) error {
			_, err := c.Lock(ctx, "x", dlock.WithFair())
			return err
		},
		"WithWait": func(ctx context.Context, c *dlock.Client) error {
			_, err := c.Lock(ctx, "x", dlock.WithWait(700*time.Millisecond))
			return err
		},
		"LockAll": func(ctx context.Context, c *dlock.Client) error {
			_, err := c.LockAll(ctx, []string{"x", "y"})
			return err
		},
		"LockAll without waiting": func(ctx context.Context, c *dlock.Client) error {
			_, err := c.LockAll(ctx, []string{"x", "y"}, dlock.WithWait(0))
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				n := newNetwork(store)
				c := dlock.New(n, nil)
				defer c.Close()
				n.setCut(true)
				for i := range 5 {
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
					err := call(ctx, c)
					cancel()
					switch {
					case errors.Is(err, dlock.ErrHeld):
						t.Errorf("call %d: %v; the store did not say that the lock is held", i+1, err)
					case !errors.Is(err, dlock.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded):
						t.Errorf("call %d: %v", i+1, err)
					case i > 0 && !errors.Is(err, dlock.ErrUnreachable):
						t.Errorf("call %d: %v; want ErrUnreachable: the outcome of the earlier call is unknown", i+1, err)
					}
					if took := time.Since(start); took > time.Second {
						t.Errorf("call %d took %v with a context of 800ms", i+1, took)
					}
				}
				n.setCut(false)
				time.Sleep(time.Minute)
			})
		})
	}
}

// slowStore answers late.
type slowStore struct {
	remote
	acquires atomic.Int64
	delay    time.Duration
}

func (s *slowStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.acquires.Add(1)
	time.Sleep(s.delay)
	return s.Store.Acquire(ctx, req)
}

func (s *slowStore) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	s.acquires.Add(1)
	time.Sleep(s.delay)
	return s.Store.AcquireAll(ctx, reqs)
}

// TryLock waits for the outcome of another caller's attempt, and then returns the holder or
// the lock.
func TestTryLockWaitsForAnotherCallersOutcome(t *testing.T) {
	for _, acquired := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			s := &slowStore{remote: remote{store}, delay: 100 * time.Millisecond}
			c, other := dlock.New(s, nil), dlock.New(store, nil)
			defer c.Close()
			defer other.Close()
			if !acquired {
				lease := mustLock(t, other, t.Context(), "x")
				defer func() { mustUnlock(t, lease) }()
			}
			var wg sync.WaitGroup
			var leases, refusals atomic.Int64
			for range 5 {
				wg.Go(func() {
					lease, err := c.TryLock(t.Context(), "x")
					switch {
					case err == nil:
						leases.Add(1)
						defer mustUnlock(t, lease)
						synctest.Wait()
						time.Sleep(time.Second)
					case errors.Is(err, dlock.ErrHeld):
						refusals.Add(1)
					default:
						t.Errorf("TryLock: %v", err)
					}
				})
			}
			wg.Wait()
			want := int64(0)
			if acquired {
				want = 1
			}
			if leases.Load() != want || refusals.Load() != 5-want {
				t.Errorf("%d leases and %d refusals; want %d and %d", leases.Load(), refusals.Load(), want, 5-want)
			}
		})
	}
}

// TryLock that waits for the outcome of an attempt gets the lock when that attempt
// has failed and was undone.
func TestTryLockSucceedsAfterAFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &scripted{remote: remote{store}, decide: func(attempt int) bool { return attempt != 1 }}
		c := dlock.New(s, nil)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = c.Lock(ctx, "x") }()
		synctest.Wait() // its attempt is under way
		start := time.Now()
		lease, err := c.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatalf("TryLock: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("TryLock took %v; the attempt before it failed after 1s", took)
		}
		mustUnlock(t, lease)
	})
}

// scripted lets a test decide which attempts are answered, and records which owners were
// released.
type scripted struct {
	remote
	decide func(attempt int) (answer bool)

	mu       sync.Mutex
	attempts int
	released []driver.Owner
	owner    driver.Owner // of the last attempt
}

func (s *scripted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	s.attempts++
	s.owner = req.Owner
	answer := s.decide(s.attempts)
	s.mu.Unlock()
	if !answer {
		<-ctx.Done()
		return driver.Grant{}, driver.ErrUnreachable
	}
	return s.Store.Acquire(ctx, req)
}

func (s *scripted) Release(ctx context.Context, grant driver.Grant) error {
	s.mu.Lock()
	s.released = append(s.released, grant.Owner)
	s.mu.Unlock()
	return s.Store.Release(ctx, grant)
}

// A waiter that had an unanswered attempt releases its owner at the end, also if a later
// attempt was refused: the first may still be carried out.
func TestRefusalDoesNotHideAnUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &scripted{remote: remote{store}, decide: func(attempt int) bool { return attempt != 3 }}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		defer func() { mustUnlock(t, lease) }()
		if _, err := c.Lock(t.Context(), "x", dlock.WithWait(80*time.Second)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("Lock: %v; want ErrHeld", err)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.attempts < 4 {
			t.Fatalf("%d attempts; want another after the unanswered one", s.attempts)
		}
		if len(s.released) != 1 || s.released[0] != s.owner {
			t.Errorf("%d releases; want one, of the owner whose attempt may still be carried out", len(s.released))
		}
	})
}

// TryLock behind a waiter without an answer yet learns the holder from that waiter's refusal.
func TestTryLockWaitsForAWaitersRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &slowStore{remote: remote{store}, delay: 100 * time.Millisecond}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		waited := make(chan *dlock.Lease)
		go func() { waited <- mustLock(t, c, t.Context(), "x") }()
		synctest.Wait() // its first attempt is under way
		start := time.Now()
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("TryLock: %v; want ErrHeld", err)
		}
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("TryLock took %v; the store had refused the waiter after 100ms", took)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-waited)
	})
}

// One refusal answers every TryLock of the process that waited for it. If each asked the
// store itself, the last calls would find no answer within RequestTimeout.
func TestRefusalAnswersEveryTryLockBehindIt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &slowStore{remote: remote{store}, delay: 100 * time.Millisecond}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		defer func() { mustUnlock(t, lease) }()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("TryLock: %v; want ErrHeld", err)
				}
			})
		}
		wg.Wait()
	})
}

// TestUnlockWithoutAnAnswerIsNotReportedAsHeld: a lease that was unlocked has ended. While the
// store does not answer the release, no caller of this process learns that the lock is held.
func TestUnlockWithoutAnAnswerIsNotReportedAsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		n.setCut(true)
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := map[string]func() error{
			"TryLock":         func() error { _, err := c.TryLock(t.Context(), "x"); return err },
			"Lock with limit": func() error { _, err := c.Lock(t.Context(), "x", dlock.WithWait(time.Second)); return err },
			"Lock":            func() error { _, err := c.Lock(short, "x"); return err },
			"LockAll":         func() error { _, err := c.LockAll(t.Context(), []string{"x", "y"}, dlock.WithWait(0)); return err },
		}
		var all sync.WaitGroup
		for name, call := range calls {
			all.Go(func() {
				if err := call(); err == nil || errors.Is(err, dlock.ErrHeld) {
					t.Errorf("%s: %v; want an error that is not ErrHeld", name, err)
				}
			})
		}
		all.Wait()
		if err := <-unlocked; !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Unlock: %v; want ErrUnreachable", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// TestWaiterInAnOutageKnowsNoHolder: once a waiter has seen that the store does not answer, no
// caller of the process learns from it that the lock is held.
func TestWaiterInAnOutageKnowsNoHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c, other := dlock.New(n, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		waiter := make(chan error, 1)
		go func() { _, err := c.Lock(ctx, "x"); waiter <- err }()
		time.Sleep(time.Second)
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("TryLock before the outage: %v; want ErrHeld", err)
		}
		n.setCut(true)
		mustUnlock(t, lease)
		time.Sleep(20 * time.Second) // the waiter polls every ten seconds
		for name, opts := range map[string][]dlock.Option{"TryLock": {dlock.WithWait(0)}, "Lock with limit": {dlock.WithWait(time.Second)}} {
			if _, err := c.Lock(t.Context(), "x", opts...); errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("%s in the outage: %v; want ErrUnreachable", name, err)
			}
		}
		cancel()
		if err := <-waiter; errors.Is(err, dlock.ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("the waiter: %v; want that it was cancelled", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}

// TestLimitOfAWaitBehindAReleaseWithoutAnAnswer: a waiter whose limit ends while the release
// before it has no answer does not report that the lock is held.
func TestLimitOfAWaitBehindAReleaseWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		waited := make(chan error, 1)
		go func() { _, err := c.Lock(t.Context(), "x", dlock.WithWait(2*time.Second)); waited <- err }()
		time.Sleep(time.Second)
		n.setCut(true)
		go func() { _ = lease.Unlock(t.Context()) }() // has no answer
		if err := <-waited; errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Lock: %v; want ErrUnreachable", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}
