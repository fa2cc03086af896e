package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

// numberOfWaiters is a variable for the sake of tests.
var numberOfWaiters = 10_000

// waiters: 10,000 goroutines of one process wait for one lock. What each costs
// in memory, and what they cost the store together. Then the lock is given up
// and they take turns, for as long as the window lasts; the rest are cancelled.
var waiters = kind{name: "waiters", rounds: 3, clientOnly: true, run: func(ctx context.Context, r round) (f figures, err error) {
	const name = "bench/waiters"
	// The runtime keeps its record of a goroutine for the next one: let both
	// measurements find as many.
	if _, err := parked(ctx); err != nil {
		return nil, err
	}
	baseline, err := parked(ctx)
	if err != nil {
		return nil, err
	}

	open, err := r.store.open(r.dir)
	if err != nil {
		return nil, err
	}
	o, err := open(ctx)
	if err != nil {
		return nil, err
	}
	counts := count(o.Store)
	c := dlock.New(counts.always(), nil)
	defer func() { err = errors.Join(err, c.Close(), o.close()) }()
	// Somebody else has the lock: for a lock of the same client the waiters
	// would not ask the store at all.
	other, err := open(ctx)
	if err != nil {
		return nil, err
	}
	stranger := dlock.New(other.Store, nil)
	defer func() { err = errors.Join(err, stranger.Close(), other.close()) }()
	lease, err := stranger.Lock(ctx, name)
	if err != nil {
		return nil, err
	}

	before, waiting := footprintNow(), waitingGoroutines()
	w := wait(ctx, c, name)
	defer w.join()
	if err := untilWaiting(ctx, waiting+numberOfWaiters); err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	idle, err := requestsWhile(ctx, r, counts)
	if err != nil {
		return nil, err
	}
	n := float64(numberOfWaiters)
	f = figures{
		waiterCount:     n,
		bytesPerWaiter:  float64(used.heap+used.stack-baseline.heap-baseline.stack) / n,
		heapPerWaiter:   float64(used.heap-baseline.heap) / n,
		storeContenders: float64(counts.contenders()),
		requestsPerS:    idle / r.window.Seconds(),
	}
	f[pairsPerS], err = w.drain(ctx, lease, r.window)
	return f, err
}}

// requestsWhile counts what the store is asked while the window passes.
func requestsWhile(ctx context.Context, r round, counts *counted) (float64, error) {
	m, err := r.meter(ctx)
	if err != nil {
		return 0, err
	}
	defer m.close()
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	calls := counts.calls.Load()
	select {
	case <-time.After(r.window):
	case <-ctx.Done():
	}
	calls = counts.calls.Load() - calls
	if s, ok, err := m.end(ctx); ok || err != nil {
		return s.asked, err
	}
	return float64(calls), nil
}

// parked is the footprint of as many goroutines that wait for a channel.
func parked(ctx context.Context) (footprint, error) {
	before, waiting := footprintNow(), waitingGoroutines()
	var group sync.WaitGroup
	defer group.Wait()
	blocked := make(chan struct{})
	defer close(blocked)
	for range numberOfWaiters {
		group.Go(func() { <-blocked })
	}
	if err := untilWaiting(ctx, waiting+numberOfWaiters); err != nil {
		return footprint{}, err
	}
	return footprintNow().minus(before), nil
}

// queue is goroutines that wait for one lock.
type queue struct {
	group   sync.WaitGroup
	cancel  context.CancelFunc
	room    room
	granted atomic.Uint64
	failed  atomic.Pointer[error]
}

func wait(ctx context.Context, c *dlock.Client, name string) *queue {
	q := new(queue)
	ctx, q.cancel = context.WithCancel(ctx)
	for range numberOfWaiters {
		q.group.Go(func() {
			lease, err := c.Lock(ctx, name)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err == nil {
				q.room.enter()
				q.granted.Add(1)
				q.room.leave()
				err = lease.Unlock(ctx)
			}
			if err != nil {
				q.failed.Store(&err)
			}
		})
	}
	return q
}

// drain gives the lock up and returns how many a second got it. Those who are
// left when the window is over are cancelled.
func (q *queue) drain(ctx context.Context, lease *dlock.Lease, window time.Duration) (rate float64, err error) {
	start := time.Now()
	if err := lease.Unlock(ctx); err != nil {
		return 0, err
	}
	timer := time.AfterFunc(window, q.cancel)
	defer timer.Stop()
	q.group.Wait()
	rate = float64(q.granted.Load()) / time.Since(start).Seconds()
	if failed := q.failed.Load(); failed != nil {
		return 0, *failed
	}
	return rate, q.room.check()
}

func (q *queue) join() {
	q.cancel()
	q.group.Wait()
}
