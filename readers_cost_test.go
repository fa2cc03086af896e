package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// countingStore counts the calls to a remote store, each of which takes a millisecond.
type countingStore struct {
	*memlock.Store
	acquires, releases, watches atomic.Int64
	queues                      bool
}

func (s *countingStore) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Local, traits.Queues = false, s.queues
	return traits
}

func (s *countingStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.acquires.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Acquire(ctx, req)
}

func (s *countingStore) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Release(ctx, grant)
}

func (s *countingStore) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	s.watches.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Watch(ctx, req, wake)
}

// TestSharedCallersThatGiveUpCostTwoAttempts: 200 shared callers, of which each waits for 100 ms behind a
// writer of another process, cost the store what a patient one does: each leaves its claim to the next.
func TestSharedCallersThatGiveUpCostTwoAttempts(t *testing.T) {
	for _, queues := range []bool{false, true} {
		t.Run(fmt.Sprintf("Traits.Queues %v", queues), func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				s := &countingStore{Store: inner, queues: queues}
				c, other := dlock.New(s, nil), dlock.New(inner, nil)
				defer c.Close()
				defer other.Close()
				writer := mustLock(t, other, t.Context(), "x")
				var readers sync.WaitGroup
				for range 200 {
					readers.Go(func() {
						if _, err := c.Lock(t.Context(), "x", dlock.WithShared(), dlock.WithWait(100*time.Millisecond)); !errors.Is(err, dlock.ErrHeld) {
							t.Errorf("got: %v; want ErrHeld", err)
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				readers.Wait()
				if a, r, w := s.acquires.Load(), s.releases.Load(), s.watches.Load(); a > 2 || r > 1 || w > 1 {
					t.Errorf("%d attempts, %d releases, %d subscriptions; want 2, 1 and 1 at most", a, r, w)
				}
				mustUnlock(t, writer)
			})
		})
	}
}

// TestReadersOfManyNames: readers that come again while others read cost the store one grant a name.
func TestReadersOfManyNames(t *testing.T) {
	const names = 2000
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		s := &countingStore{Store: inner}
		c := dlock.New(s, nil)
		defer c.Close()
		var mu sync.Mutex
		var leases []*dlock.Lease
		for range 4 {
			var readers sync.WaitGroup
			for i := range names {
				readers.Go(func() {
					lease := mustLock(t, c, t.Context(), fmt.Sprint(i), dlock.WithShared())
					mu.Lock()
					defer mu.Unlock()
					leases = append(leases, lease)
				})
			}
			readers.Wait()
		}
		if n := s.acquires.Load(); n != names {
			t.Errorf("4 readers of %d names each cost %d attempts", names, n)
		}
		for _, lease := range leases {
			mustUnlock(t, lease)
		}
	})
}

// TestSharedWaitBeginsAfterTheFirstAttempt: the first attempt for a name is that of all shared callers. The
// limit of WithWait, which does not count the caller's own first attempt, does not count it either.
func TestSharedWaitBeginsAfterTheFirstAttempt(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c, other := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond}, nil), dlock.New(inner, nil)
				defer c.Close()
				defer other.Close()
				if held {
					defer mustUnlock(t, mustLock(t, other, t.Context(), "x"))
				}
				start := time.Now()
				const limit = 10 * time.Millisecond
				first := lockSoon(c, t.Context(), dlock.WithShared(), dlock.WithWait(time.Second))
				second := <-lockSoon(c, t.Context(), dlock.WithShared(), dlock.WithWait(limit))
				took := time.Since(start)
				switch {
				case held:
					if !errors.Is(second.err, dlock.ErrHeld) || took < 100*time.Millisecond+limit {
						t.Errorf("%v after %v; want ErrHeld after the attempt and the wait", second.err, took)
					}
				case second.err != nil || took > 100*time.Millisecond: // else the grant is shared
					t.Errorf("after %v: %v", took, second.err)
				default:
					mustUnlock(t, second.lease)
				}
				if got := <-first; got.err == nil {
					mustUnlock(t, got.lease)
				} else if !held || !errors.Is(got.err, dlock.ErrHeld) {
					t.Error(got.err)
				}
			})
		})
	}
}

// realNow is a clock that also runs in a bubble.
func realNow() time.Duration {
	var now syscall.Timeval
	_ = syscall.Gettimeofday(&now)
	return time.Duration(now.Nano())
}

// TestCancelledSharedCallersCostLittle: shared callers that give up together behind an attempt without an
// answer cost time in proportion to their number.
func TestCancelledSharedCallersCostLittle(t *testing.T) {
	cost := func(callers int) time.Duration {
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			c := dlock.New(&slowStore{remote: remote{memlock.New()}, delay: time.Minute}, &dlock.Options{RequestTimeout: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if _, err := c.Lock(ctx, "x", dlock.WithShared()); !errors.Is(err, context.Canceled) {
						t.Errorf("got: %v", err)
					}
				})
			}
			synctest.Wait()
			start := realNow()
			cancel()
			all.Wait()
			took = realNow() - start
			_ = c.Close()
		})
		return took
	}
	const few, more = 1000, 16
	best := 0.0
	for range 5 { // one that is not disturbed is enough
		small, large := cost(few), cost(more*few)
		ratio := float64(large) / float64(small)
		if best == 0 || ratio < best {
			best = ratio
		}
		if best < more*more/2 {
			return
		}
	}
	t.Errorf("%d times the callers cost %.0f times the time", more, best)
}
