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

// queueServer is a server whose watches keep the places of waiters. Every attempt takes a while.
type queueServer struct {
	*memlock.Store
	takes    time.Duration
	silent   atomic.Bool
	raw      bool // its errors while it is silent are those of the context, as a database's are
	attempts atomic.Int64
	underWay atomic.Int64
	most     atomic.Int64
}

func (q *queueServer) Traits() driver.Traits {
	traits := q.Store.Traits()
	traits.Local, traits.Queues, traits.WatchesExpiry = false, true, true
	return traits
}

func (q *queueServer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	q.attempts.Add(1)
	q.most.Store(max(q.most.Load(), q.underWay.Add(1)))
	defer q.underWay.Add(-1)
	var answered <-chan time.Time
	if !q.silent.Load() {
		answered = time.After(q.takes)
	}
	select {
	case <-answered:
	case <-ctx.Done():
		if q.raw {
			return driver.Grant{}, context.Cause(ctx)
		}
		return driver.Grant{}, errors.Join(driver.ErrUnreachable, context.Cause(ctx))
	}
	return q.Store.Acquire(ctx, req)
}

func (q *queueServer) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	stop, err := q.Store.Watch(ctx, req, wake)
	if err != nil {
		return nil, err
	}
	place := time.NewTicker(driver.PlaceTTL(req.TTL) * 9 / 10)
	watching, end := context.WithCancel(context.Background())
	go func() {
		for {
			select {
			case <-place.C:
				_, _ = q.Store.Acquire(watching, req)
			case <-watching.Done():
				place.Stop()
				return
			}
		}
	}()
	return func() { end(); stop() }, nil
}

// gather starts fair callers, one after the other, while another process holds the lock.
func gather(t *testing.T, c *dlock.Client, ctx context.Context, callers int, granted func(i int, lease *dlock.Lease)) (errs []error, join func()) {
	t.Helper()
	errs = make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			lease, err := c.Lock(ctx, "x", dlock.WithFair())
			if errs[i] = err; err == nil {
				granted(i, lease)
				mustUnlock(t, lease)
			}
		})
		synctest.Wait()
	}
	return errs, all.Wait
}

// A few requests of a crowd are under way at a time. The time that a caller waits for its turn is not
// the store's. A crowd that waits costs the store what one waiter does, and is served in order.
func TestFairCrowdWaitsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &queueServer{Store: store, takes: 2 * time.Second}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		held := mustLock(t, other, t.Context(), "x")
		const callers = 400
		var order []int
		errs, join := gather(t, c, t.Context(), callers, func(i int, _ *dlock.Lease) { order = append(order, i) })
		time.Sleep(2 * time.Minute)
		const atOnce = 64
		if n := s.most.Load(); n > atOnce {
			t.Errorf("%d attempts were under way", n)
		}
		s.attempts.Store(0)
		const ttls = 20
		time.Sleep(ttls * dlock.DefaultTTL)
		if n := s.attempts.Load(); n > 5*ttls+3*callers { // alone, each would make 3 in a TTL
			t.Errorf("%d attempts of a crowd that waits in %d TTLs", n, ttls)
		}
		mustUnlock(t, held)
		join()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		for place, i := range order {
			if max(place-i, i-place) >= atOnce { // attempts that are under way together may overtake each other
				t.Errorf("caller %d of %d was served as number %d", i, callers, place)
			}
		}
	})
}

// Every waiter of a crowd notices an outage, and callers that have not asked yet fail with the first.
func TestFairCrowdNoticesAnOutage(t *testing.T) {
	for name, waited := range map[string]time.Duration{"before the first answer": 0, "while it waits": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &queueServer{Store: store}
				c, other := dlock.New(s, nil), dlock.New(store, nil)
				defer other.Close()
				held := mustLock(t, other, t.Context(), "x")
				s.silent.Store(waited == 0)
				errs, join := gather(t, c, t.Context(), 200, nil)
				time.Sleep(waited)
				s.silent.Store(true)
				start := time.Now()
				join()
				for _, err := range errs {
					if !errors.Is(err, dlock.ErrUnreachable) {
						t.Fatalf("Lock: %v; want ErrUnreachable", err)
					}
				}
				limit := 2 * dlock.DefaultRequestTimeout
				if waited > 0 {
					limit += 3 * dlock.DefaultTTL
				}
				if took := time.Since(start); took > limit {
					t.Errorf("noticed after %v; want %v at most", took, limit)
				}
				s.silent.Store(false)
				mustUnlock(t, held)
				_ = c.Close()
				for info := range store.List(t.Context(), "") {
					t.Errorf("left behind: %+v", info)
				}
			})
		})
	}
}

// A caller whose context ends before its turn returns at once, and does not keep the turn.
func TestCancelledCallerLeavesTheCrowd(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &queueServer{Store: store, takes: time.Second}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		held := mustLock(t, other, t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		errs, join := gather(t, c, ctx, 100, nil)
		cancel()
		start := time.Now()
		join()
		if took := time.Since(start); took > 2*s.takes {
			t.Errorf("cancelled callers returned after %v", took)
		}
		for _, err := range errs {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("Lock: %v; want Canceled", err)
			}
		}
		mustUnlock(t, held)
		mustUnlock(t, mustLock(t, c, t.Context(), "x", dlock.WithFair()))
	})
}

// A limit that ends in the line says what is known: that the store is silent, although callers ahead have
// left it with errors of their own contexts, or, after a moment, only that there is no answer yet.
func TestLimitInTheLineOfACrowd(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &queueServer{Store: store, takes: 20 * time.Millisecond}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		held := mustLock(t, other, t.Context(), "x")
		limited := func(limit time.Duration) error {
			_, err := c.Lock(t.Context(), "x", dlock.WithFair(), dlock.WithWait(limit))
			return err
		}
		_, join := gather(t, c, t.Context(), 300, func(int, *dlock.Lease) {})
		time.Sleep(30 * time.Millisecond)
		undecided(t, "a limit of a moment", limited(5*time.Millisecond))
		mustUnlock(t, held)
		join()

		s.raw = true
		s.silent.Store(true)
		for _, ends := range []time.Duration{time.Second, 3 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), ends)
			defer cancel()
			_, join := gather(t, c, ctx, 64, nil)
			defer join()
		}
		if err := limited(1100 * time.Millisecond); !errors.Is(err, dlock.ErrUnreachable) || errors.Is(err, dlock.ErrHeld) {
			t.Errorf("Lock in an outage: %v; want ErrUnreachable", err)
		}
	})
}

// TryLock waits in the line for a RequestTimeout at most, also if the store answers those ahead.
func TestTryLockDoesNotWaitForACrowd(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &queueServer{Store: store, takes: 2 * time.Second}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		held := mustLock(t, other, t.Context(), "x")
		_, join := gather(t, c, t.Context(), 400, func(int, *dlock.Lease) {})
		start := time.Now()
		if _, err := c.TryLock(t.Context(), "x", dlock.WithFair()); !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("TryLock: %v; want ErrUnreachable", err)
		}
		if took := time.Since(start); took > dlock.DefaultRequestTimeout {
			t.Errorf("TryLock took %v", took)
		}
		mustUnlock(t, held)
		join()
	})
}
