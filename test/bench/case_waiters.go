package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// numberOfWaiters is a variable for the tests.
var numberOfWaiters = 10_000

// waiters lets 10,000 goroutines of one process wait for one lock. It measures
// the memory of each waiter, and the requests that all of them cause. Then the
// lock is released and the waiters acquire it one after the other until the
// window ends; the remaining waiters are cancelled.
var waiters = kind{name: "waiters", rounds: 3, clientOnly: true, run: func(ctx context.Context, r round) (figures, error) {
	return waitTogether(ctx, r, numberOfWaiters, r.window)
}}

// growWaiters is waiters with a growing number of goroutines.
var growWaiters = kind{name: "grow-waiters", rounds: 1, clientOnly: true, points: powersOfTen(10_000), run: func(ctx context.Context, r round) (figures, error) {
	return waitTogether(ctx, r, r.at, drainLimit)
}}

// drainLimit lets all waiters of a curve acquire the lock. It ends a measurement
// on a machine that is far slower than any store.
const drainLimit = 20 * time.Second

func waitTogether(ctx context.Context, r round, n int, limit time.Duration) (f figures, err error) {
	const name = "bench/waiters"
	// The runtime reuses its record of an ended goroutine. The first call makes
	// both measurements find the same number of records.
	if _, err := parked(ctx, n); err != nil {
		return nil, err
	}
	baseline, err := parked(ctx, n)
	if err != nil {
		return nil, err
	}

	open, err := r.store.Open(r.dir)
	if err != nil {
		return nil, err
	}
	o, err := open(ctx)
	if err != nil {
		return nil, err
	}
	counts := subjects.Count(o.Store)
	c := dlock.New(counts.Always(), nil)
	defer func() { err = errors.Join(err, c.Close(), o.Close()) }()
	// Another client holds the lock: for a lock of the same client the waiters
	// would not call the store at all.
	other, err := open(ctx)
	if err != nil {
		return nil, err
	}
	stranger := dlock.New(other.Store, nil)
	defer func() { err = errors.Join(err, stranger.Close(), other.Close()) }()
	lease, err := stranger.Lock(ctx, name)
	if err != nil {
		return nil, err
	}

	before, waiting := footprintNow(), waitingGoroutines()
	w := wait(ctx, c, name, n)
	defer w.join()
	if err := untilWaiting(ctx, waiting+n); err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	idle, err := requestsWhile(ctx, r, counts)
	if err != nil {
		return nil, err
	}
	f = figures{
		waiterCount:     float64(n),
		storeContenders: float64(counts.Contenders()),
		requestsPerS:    idle / r.window.Seconds(),
	}
	if n >= measurable {
		f[bytesPerWaiter] = float64(used.heap+used.stack-baseline.heap-baseline.stack) / float64(n)
		f[heapPerWaiter] = float64(used.heap-baseline.heap) / float64(n)
	}
	f[pairsPerS], err = w.drain(ctx, lease, limit)
	return f, err
}

// requestsWhile counts the requests to the store during the window.
func requestsWhile(ctx context.Context, r round, counts *subjects.Counted) (float64, error) {
	m, err := r.meter(ctx)
	if err != nil {
		return 0, err
	}
	defer m.close()
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	calls := counts.Calls.Load()
	select {
	case <-time.After(r.window):
	case <-ctx.Done():
	}
	calls = counts.Calls.Load() - calls
	if s, ok, err := m.end(ctx); ok || err != nil {
		return s.asked, err
	}
	return float64(calls), nil
}

// parked returns the footprint of the same number of goroutines that wait for a
// channel.
func parked(ctx context.Context, n int) (footprint, error) {
	before, waiting := footprintNow(), waitingGoroutines()
	var group sync.WaitGroup
	defer group.Wait()
	blocked := make(chan struct{})
	defer close(blocked)
	for range n {
		group.Go(func() { <-blocked })
	}
	if err := untilWaiting(ctx, waiting+n); err != nil {
		return footprint{}, err
	}
	return footprintNow().minus(before), nil
}

// queue is a set of goroutines that wait for one lock.
type queue struct {
	group     sync.WaitGroup
	cancel    context.CancelFunc
	occupancy occupancy
	granted   atomic.Uint64
	first     chan struct{} // closed at the first acquisition
	failed    atomic.Pointer[error]
}

func wait(ctx context.Context, c *dlock.Client, name string, n int) *queue {
	q := &queue{first: make(chan struct{})}
	ctx, q.cancel = context.WithCancel(ctx)
	for range n {
		q.group.Go(func() {
			lease, err := c.Lock(ctx, name)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err == nil {
				q.occupancy.enter()
				if q.granted.Add(1) == 1 {
					close(q.first)
				}
				q.occupancy.leave()
				err = lease.Unlock(ctx)
			}
			if err != nil {
				q.failed.Store(&err)
			}
		})
	}
	return q
}

// drain releases the lock and returns the number of acquisitions per second. When
// the window ends, it cancels the remaining waiters. The window of a test may end
// before the first acquisition, which drain waits for.
func (q *queue) drain(ctx context.Context, lease *dlock.Lease, window time.Duration) (rate float64, err error) {
	start := time.Now()
	if err := lease.Unlock(ctx); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() { q.group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(window):
		select {
		case <-q.first:
		case <-done:
		case <-time.After(drainLimit):
		}
		q.cancel()
		<-done
	}
	rate = float64(q.granted.Load()) / time.Since(start).Seconds()
	if failed := q.failed.Load(); failed != nil {
		return 0, *failed
	}
	return rate, q.occupancy.check()
}

func (q *queue) join() {
	q.cancel()
	q.group.Wait()
}
