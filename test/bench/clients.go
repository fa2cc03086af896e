package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// open opens dlock's own store, and counts the calls to it.
func (r round) open(ctx context.Context) (*subjects.Counted, error) {
	store, err := r.store.Open(ctx, r.place)
	if err != nil {
		return nil, err
	}
	return subjects.Count(store), nil
}

// callers are goroutines of one process that use one name.
type callers struct {
	group   sync.WaitGroup
	cancel  context.CancelFunc
	missing atomic.Int64  // goroutines that must still have the lock until there are enough
	enough  chan struct{} // closed when there are
	pairs   atomic.Uint64
	failed  atomic.Pointer[error]
}

// call starts n goroutines, which end when they are cancelled.
func call(ctx context.Context, n, enough int, do func(context.Context, *callers) error) *callers {
	all := &callers{enough: make(chan struct{})}
	all.missing.Store(int64(enough))
	ctx, all.cancel = context.WithCancel(ctx)
	for range n {
		all.group.Go(func() {
			if err := do(ctx, all); err != nil && !errors.Is(err, context.Canceled) {
				all.failed.Store(&err)
			}
		})
	}
	return all
}

// granted is called by a goroutine that has the lock for the first time.
func (all *callers) granted() {
	if all.missing.Add(-1) == 0 {
		close(all.enough)
	}
}

// end cancels the goroutines and waits for them.
func (all *callers) end() error {
	all.cancel()
	all.group.Wait()
	if failed := all.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// drain blocks until all goroutines have ended, or the window has. The window of a
// test may end before the first acquisition, which drain waits for.
func (all *callers) drain(window time.Duration) {
	done := make(chan struct{})
	go func() { all.group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(window):
		select {
		case <-all.enough:
		case <-done:
		case <-time.After(drainLimit):
		}
	}
}

// numberOfWaiters is a variable for the tests.
var numberOfWaiters = 10_000

// drainLimit lets all waiters of a curve acquire the lock. It ends a measurement
// on a machine that is far slower than any store.
const drainLimit = 20 * time.Second

// runWaiters lets goroutines of one process wait for one lock: 10,000, or as many
// as the point of a curve. It measures the memory of each waiter, and the requests
// that all of them cause. Then the lock is released and the waiters acquire it one
// after the other, in a curve until all have had it, else until the window ends;
// the remaining waiters are cancelled.
func runWaiters(ctx context.Context, r round) (f figures, err error) {
	const name = "bench/waiters"
	n, limit := numberOfWaiters, r.window
	if r.at > 0 {
		n, limit = r.at, drainLimit
	}
	// The runtime reuses its record of an ended goroutine. The first call makes
	// both measurements find the same number of records.
	if _, err := parked(ctx, n); err != nil {
		return nil, err
	}
	baseline, err := parked(ctx, n)
	if err != nil {
		return nil, err
	}

	counts, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	c := dlock.New(counts, nil)
	defer func() { err = errors.Join(err, c.Close(), counts.Close()) }()
	// Another client holds the lock: for a lock of the same client the waiters
	// would not call the store at all.
	other, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	stranger := dlock.New(other, nil)
	defer func() { err = errors.Join(err, stranger.Close(), other.Close()) }()
	lease, err := stranger.Lock(ctx, name)
	if err != nil {
		return nil, err
	}

	before, waiting := footprintNow(), waitingGoroutines()
	var occupancy occupancy
	waiters := call(ctx, n, 1, func(ctx context.Context, all *callers) error {
		lease, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		occupancy.enter()
		all.pairs.Add(1)
		all.granted()
		occupancy.leave()
		return lease.Unlock(context.WithoutCancel(ctx))
	})
	defer func() { _ = waiters.end() }()
	if err := untilWaiting(ctx, waiting+n); err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	idle, err := r.observe(ctx, counts, r.window)
	if err != nil {
		return nil, err
	}
	f = figures{
		waiterCount:     float64(n),
		storeContenders: float64(counts.Contenders()),
		requestsPerS:    idle.requests / r.window.Seconds(),
	}
	if n >= measurable {
		f[bytesPerWaiter] = used.minus(baseline).each(n)
		f[heapPerWaiter] = float64(used.heap-baseline.heap) / float64(n)
	}
	start := time.Now()
	if err := lease.Unlock(ctx); err != nil {
		return nil, err
	}
	waiters.drain(limit)
	failed := waiters.end()
	f[pairsPerS] = float64(waiters.pairs.Load()) / time.Since(start).Seconds()
	return f, errors.Join(failed, occupancy.check())
}

// runGrowingReaders lets a growing number of goroutines of one process use one name
// shared, each for 10 ms at a time. It counts the requests to the store, and the
// holders that the store lists.
func runGrowingReaders(ctx context.Context, r round) (f figures, err error) {
	const name = "bench/grow-readers"
	counts, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	c, lister := dlock.New(counts, nil), dlock.New(counts.Watched, nil)
	defer func() { err = errors.Join(err, c.Close(), lister.Close(), counts.Close()) }()

	readers := call(ctx, r.at, r.at, func(ctx context.Context, all *callers) error {
		for first := true; ctx.Err() == nil; first = false {
			lease, err := c.Lock(ctx, name, dlock.WithShared())
			if err != nil {
				return err
			}
			if first {
				all.granted()
			}
			time.Sleep(10 * time.Millisecond)
			if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			all.pairs.Add(1)
		}
		return nil
	})
	defer func() { err = errors.Join(err, readers.end()) }()
	select {
	case <-readers.enough:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var pairs uint64
	for r.window = max(r.window, shortest); pairs == 0; r.window *= 4 { // longer if the machine is busy with other work
		before, start := readers.pairs.Load(), time.Now()
		seen, err := r.observe(ctx, counts, r.window)
		if err != nil {
			return nil, err
		}
		pairs = readers.pairs.Load() - before
		f = figures{pairsPerS: float64(pairs) / time.Since(start).Seconds(), requestsPerS: seen.requests / r.window.Seconds()}
	}
	f[storeHolders], err = mostListed(ctx, lister, name, shortest)
	return f, err
}

// mostListed returns the largest number of holders that the store listed during the window.
func mostListed(ctx context.Context, c *dlock.Client, name string, window time.Duration) (most float64, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(window); time.Now().Before(end); <-tick.C {
		var n float64
		for _, err := range c.Locks(ctx, name) {
			if err != nil {
				return 0, err
			}
			n++
		}
		most = max(most, n)
	}
	return most, nil
}

// runHeld lets one client hold many locks. It measures the memory of each lock, and
// the CPU time of renewing all of them in a client that does nothing else.
func runHeld(ctx context.Context, r round) (f figures, err error) {
	counts, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	// The cost of renewal is inversely proportional to the TTL, so the result
	// includes it.
	ttl := dlock.DefaultTTL
	if shortTTL := 3 * time.Second; r.budget < shortTTL {
		ttl = shortTTL
	}
	goroutines, before := runtime.NumGoroutine(), footprintNow()
	c := dlock.New(counts, &dlock.Options{TTL: ttl})
	defer func() { err = errors.Join(err, c.Close(), counts.Close()) }()

	n := r.store.Held
	leases := make([]*dlock.Lease, n)
	start := time.Now()
	for i := range leases {
		if leases[i], err = c.Lock(ctx, fmt.Sprintf("bench/held/%d", i)); err != nil {
			return nil, err
		}
	}
	f = figures{
		leaseCount:       float64(n),
		acquisitionsPerS: float64(n) / time.Since(start).Seconds(),
		bytesPerLease:    footprintNow().minus(before).each(n),
		goroutinesAdded:  float64(runtime.NumGoroutine() - goroutines),
		ttlSeconds:       ttl.Seconds(),
	}
	window := 2 * ttl / 3
	seen, err := r.observe(ctx, counts, window)
	if err != nil {
		return nil, err
	}
	f[renewCPUShare] = seen.cpu.Seconds() / window.Seconds()
	f[requestsPerS] = seen.requests / window.Seconds()
	f[renewalsPerS] = seen.renewals / window.Seconds()
	if seen.work != nil && seen.renewals > 0 {
		f[requestsPerRenewal] = seen.requests / seen.renewals * float64(n)
		f[serverCPUShare] = seen.work.CPU.Seconds() / window.Seconds()
	}
	for _, lease := range leases {
		if err := context.Cause(lease.Context()); err != nil {
			return nil, fmt.Errorf("%s did not stay held: %w", lease.Name(), err)
		}
	}
	return f, nil
}

// runBesideHeld measures one goroutine without contention while its client holds a
// growing number of other locks.
func runBesideHeld(ctx context.Context, r round) (f figures, err error) {
	l, err := r.openLoad(ctx, 1, nil, func(int) string { return "bench/beside" })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.client.Close()) }()
	before := footprintNow()
	if err := holdTogether(ctx, l.client, r.at); err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	if f, err = l.counted(ctx, r.window); err != nil {
		return nil, err
	}
	f[leaseCount] = float64(r.at)
	if r.at >= measurable {
		f[bytesPerLease] = used.each(r.at)
	}
	return f, l.summary(f)
}

// holdTogether acquires n locks from several goroutines, because a store may
// carry out calls that arrive together in one write.
func holdTogether(ctx context.Context, c *subjects.Client, n int) error {
	const goroutines = 64
	var group sync.WaitGroup
	failures := make([]error, goroutines)
	for g := range goroutines {
		group.Go(func() {
			for i := g; i < n && failures[g] == nil; i += goroutines {
				w, err := c.Worker(ctx, subjects.Want{Name: fmt.Sprintf("bench/held/%d", i)})
				if err == nil {
					err = w.Lock(ctx)
				}
				failures[g] = err
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}
