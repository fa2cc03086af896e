package dlock_test

import (
	"context"
	"errors"
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

func TestLockAllWaitLimitIsForAllNames(t *testing.T) {
	eachWay(t, func(t *testing.T, c, other *dlock.Client, opts []dlock.Option) {
		b, d := mustLock(t, other, t.Context(), "b"), mustLock(t, other, t.Context(), "d")
		time.AfterFunc(700*time.Millisecond, func() { mustUnlock(t, b) })
		start := time.Now()
		_, err := c.LockAll(t.Context(), []string{"a", "b", "c", "d"}, append(opts, dlock.WithWait(time.Second))...)
		if !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("LockAll: %v", err)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		mustUnlock(t, d)
	})
}

// The first attempt does not count as waiting, for LockAll as for Lock. A LockAll that has
// waited for one name has that much less time for the others.
func TestLockAllWaitLimitBeginsWithTheFirstRefusal(t *testing.T) {
	for _, way := range []struct {
		name string
		opts []dlock.Option
	}{{"at once", nil}, {"one after the other", []dlock.Option{dlock.WithFair()}}} {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &slowStore{remote: remote{store}, delay: 100 * time.Millisecond}
				c, other := dlock.New(s, nil), dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				names := []string{"a", "b"}
				leases, err := c.LockAll(t.Context(), names, append(way.opts, dlock.WithWait(50*time.Millisecond))...)
				if err != nil {
					t.Fatalf("LockAll of free names, whose attempts take 100ms, with a limit of 50ms: %v", err)
				}
				if err := leases.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				b := mustLock(t, other, t.Context(), "b")
				defer func() { mustUnlock(t, b) }()
				_, err = c.LockAll(t.Context(), names, append(way.opts, dlock.WithWait(50*time.Millisecond))...)
				if !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("LockAll: %v; want ErrHeld", err)
				}
			})
		})
	}
}

// A set whose names are released one after the other is notified of each release.
func TestLockAllIsNotifiedOfTheNameThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		start := time.Now()
		for i, name := range []string{"a", "b", "c"} {
			lease := mustLock(t, other, t.Context(), name)
			time.AfterFunc(time.Duration(1+i)*2*time.Second, func() { mustUnlock(t, lease) })
		}
		leases, err := c.LockAll(t.Context(), []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		if late := time.Since(start) - 6*time.Second; late > 100*time.Millisecond {
			t.Errorf("acquired %v after the last release", late)
		}
		if err := leases.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// unansweredSecond does not answer the second attempt, and counts the releases of each name.
type unansweredSecond struct {
	slowStore
	mu       sync.Mutex
	attempts int
	released map[string]int
}

func (s *unansweredSecond) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	s.mu.Lock()
	s.attempts++
	attempt := s.attempts
	s.mu.Unlock()
	if attempt == 2 {
		<-ctx.Done()
		return nil, driver.ErrUnreachable
	}
	return s.Store.AcquireAll(ctx, reqs)
}

func (s *unansweredSecond) Release(ctx context.Context, grant driver.Grant) error {
	s.mu.Lock()
	s.released[grant.Name]++
	s.mu.Unlock()
	return s.Store.Release(ctx, grant)
}

// A LockAll that gives up while it waits for another caller of the process undoes its
// attempts of unknown outcome.
func TestLockAllUndoesWhenItGivesUpInTheLocalQueue(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &unansweredSecond{slowStore: slowStore{remote: remote{store}}, released: map[string]int{}}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		b := mustLock(t, other, t.Context(), "b")
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { _, err := c.LockAll(ctx, []string{"a", "b"}); result <- err }()
		time.Sleep(6 * time.Second) // the third attempt was refused because of b
		a := mustLock(t, c, t.Context(), "a", dlock.WithWait(0))
		mustUnlock(t, b)
		synctest.Wait() // LockAll waits for a
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll: %v; want that it was cancelled", err)
		}
		synctest.Wait()
		s.mu.Lock()
		if s.attempts != 3 || s.released["a"] != 1 || s.released["b"] != 1 {
			t.Errorf("%d attempts, releases %v; want 3, and that both names of the unanswered attempt were released", s.attempts, s.released)
		}
		s.mu.Unlock()
		mustUnlock(t, a)
	})
}

// A LockAll that finds fair callers and goes on with one name after the other undoes its attempts of
// unknown outcome for all names, also for those that it never comes to.
func TestLockAllUndoesBeforeItQueues(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &unansweredSecond{slowStore: slowStore{remote: remote{store}}, released: map[string]int{}}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		b := mustLock(t, other, t.Context(), "b")
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { _, err := c.LockAll(ctx, []string{"a", "b", "c"}); result <- err }()
		synctest.Wait() // the second attempt is under way
		fair := make(chan lockResult)
		go func() {
			lease, err := other.Lock(t.Context(), "b", dlock.WithFair())
			fair <- lockResult{lease, err}
		}()
		time.Sleep(6 * time.Second) // the third attempt was refused because of b, and LockAll queues
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll: %v; want that it was cancelled", err)
		}
		synctest.Wait()
		s.mu.Lock()
		if s.attempts != 3 || s.released["c"] != 1 {
			t.Errorf("%d attempts, releases %v; want 3, and that the last name was released, too", s.attempts, s.released)
		}
		s.mu.Unlock()
		mustUnlock(t, b)
		mustUnlock(t, (<-fair).lease)
	})
}

// TestLockAllBesideSlowAttempts: a LockAll that waits for other attempts of the process again and again
// does not take a store that answers for one that does not.
func TestLockAllBesideSlowAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&slowStore{remote: remote{store}, delay: time.Second}, &dlock.Options{RequestTimeout: 3 * time.Second})
		defer c.Close()
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		var others sync.WaitGroup
		for i := range 6 {
			others.Go(func() {
				for ctx.Err() == nil {
					if lease, err := c.Lock(ctx, []string{"a", "b"}[i%2]); err == nil {
						mustUnlock(t, lease)
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		leases, err := c.LockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatalf("LockAll on a store that answers within a second: %v", err)
		}
		if err := leases.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		others.Wait()
	})
}

// A LockAll that acquires in order, and waits for a name, gives up at once if it loses another name.
func TestLockAllGivesUpAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(bareStore{store}, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		taken := mustLock(t, other, t.Context(), "c")
		failed := make(chan error, 1)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*dlock.DefaultTTL)
		defer cancel()
		go func() {
			_, err := c.LockAll(ctx, []string{"a", "b", "c"})
			failed <- err
		}()
		synctest.Wait()
		for info := range store.List(t.Context(), "b") {
			if err := other.Break(t.Context(), "b", info.Token); err != nil {
				t.Fatal(err)
			}
		}
		err := <-failed
		if !errors.Is(err, dlock.ErrLost) || errors.Is(err, dlock.ErrHeld) || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("LockAll: %v; want that b was lost", err)
		}
		if took := time.Since(start); took > dlock.DefaultTTL {
			t.Errorf("LockAll waited %v, although it lost a name at its next renewal", took)
		}
		mustUnlock(t, taken)
	})
}

// TestLockAllWaitsForEachAnswerAnew: a LockAll waits for the outcome of a caller that gives up, is refused, and
// much later waits for another outcome. The time in between is not that of an answer.
func TestLockAllWaitsForEachAnswerAnew(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&slowStore{remote: remote{store}, delay: 100 * time.Millisecond}, nil)
		other := dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		held := mustLock(t, other, t.Context(), "b")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v; want that it was cancelled", err)
			}
		})
		synctest.Wait() // its attempt is under way
		all.Go(func() {
			leases, err := c.LockAll(t.Context(), []string{"a", "b"})
			if err != nil {
				t.Errorf("LockAll: %v", err)
			} else if err := leases.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		time.Sleep(2 * dlock.DefaultRequestTimeout) // the set was refused because of b
		all.Go(func() { mustUnlock(t, mustLock(t, c, t.Context(), "a")) })
		synctest.Wait()
		mustUnlock(t, held)
		all.Wait()
	})
}

// TestCallersBehindLockAllsReportNoOutage: callers of the process want a name and each another one, which is held.
// Their attempts take longer together than a RequestTimeout, but the store answers all the time.
func TestCallersBehindLockAllsReportNoOutage(t *testing.T) {
	for name, opts := range map[string][]dlock.Option{"TryLock": {dlock.WithWait(0)}, "Lock": nil, "LockAll": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(&slowStore{remote: remote{store}, delay: 100 * time.Millisecond}, nil)
				other := dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range 100 {
					rest := "rest" + strconv.Itoa(i)
					held := mustLock(t, other, ctx, rest)
					defer func() { mustUnlock(t, held) }()
					all.Go(func() {
						if _, err := c.LockAll(ctx, []string{"a", rest}); !errors.Is(err, context.Canceled) {
							t.Errorf("LockAll of a held name: %v", err)
						}
					})
				}
				synctest.Wait()
				if name == "LockAll" {
					leases, err := c.LockAll(ctx, []string{"a", "b"})
					if err != nil {
						t.Errorf("LockAll of free names: %v", err)
					} else if err := leases.Unlock(ctx); err != nil {
						t.Error(err)
					}
				} else if lease, err := c.Lock(ctx, "a", opts...); err != nil {
					t.Errorf("%s of a free name: %v", name, err)
				} else {
					mustUnlock(t, lease)
				}
				cancel()
				all.Wait()
			})
		})
	}
}
