package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// modeProcesses and modeGoroutines make the 64 goroutines of readers and permits.
const (
	modeProcesses  = 4
	modeGoroutines = 16
)

var (
	readersPlan = subjects.Plan{Name: "bench/readers", Goroutines: modeGoroutines, Hold: time.Millisecond, Shared: 95}
	permitsPlan = subjects.Plan{Name: "bench/permits", Goroutines: modeGoroutines, Hold: time.Millisecond, Limit: 8}
)

// readers lets 4 processes with 16 goroutines each use one name for 1 ms at a time, 95 % of the
// time shared. Where processes cannot share the store, clients take their place.
var readers = kind{name: "readers", rounds: 5, mode: driver.Mode{Shared: true}, run: func(ctx context.Context, r round) (figures, error) {
	return competeInModes(ctx, r, readersPlan)
}}

// permits lets 4 processes with 16 goroutines each use a semaphore with 8 permits, each for 1 ms
// at a time.
var permits = kind{name: "permits", rounds: 5, mode: driver.Mode{Limit: permitsPlan.Limit}, run: func(ctx context.Context, r round) (figures, error) {
	return competeInModes(ctx, r, permitsPlan)
}}

func competeInModes(ctx context.Context, r round, p subjects.Plan) (figures, error) {
	if r.subject.Exclusive {
		p.Shared, p.Limit = 0, 0
	}
	return competeUntilMeasured(ctx, r, modeProcesses, p, evaluateModes)
}

// evaluateModes merges the reports, and checks which holders there were at the same time.
func evaluateModes(reports []report, s span, p subjects.Plan) (figures, error) {
	history := merge(reports)
	if p.Limit > 0 {
		if most := mostHolders(history); most > p.Limit {
			return nil, fmt.Errorf("%w: %d holders at a time; the limit is %d", errNotExclusive, most, p.Limit)
		}
		return rates(reports, history, s, p)
	}
	var lastExclusive, last time.Duration // when the holders so far had released the lock
	for _, t := range history {
		if t.Granted < lastExclusive || t.Exclusive && t.Granted < last {
			return nil, fmt.Errorf("%w: process %d was granted the lock beside an exclusive holder, or exclusively beside a shared one",
				errNotExclusive, t.process)
		}
		last = max(last, t.Released)
		if t.Exclusive {
			lastExclusive = t.Released
		}
	}
	return rates(reports, history, s, p)
}

// mostHolders returns how many holders there were at the same time. Of a grant and a release at the
// same moment the release counts first.
func mostHolders(history []acquisition) (most int) {
	var released []time.Duration
	for _, t := range history {
		released = append(released, t.Released)
	}
	slices.Sort(released)
	gone := 0
	for i, t := range history {
		for gone < len(released) && released[gone] <= t.Granted {
			gone++
		}
		most = max(most, i+1-gone)
	}
	return most
}

// growReaders lets a growing number of goroutines of one process use one name shared, each for
// 10 ms at a time. It counts the requests to the store, and the holders that the store lists.
var growReaders = kind{name: "grow-readers", rounds: 1, clientOnly: true, mode: driver.Mode{Shared: true},
	points: []int{1, 100, 10_000}, run: func(ctx context.Context, r round) (figures, error) { return readTogether(ctx, r, r.at) }}

func readTogether(ctx context.Context, r round, n int) (f figures, err error) {
	const name = "bench/grow-readers"
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
	lister := dlock.New(o.Store, nil)
	defer func() { err = errors.Join(err, c.Close(), lister.Close(), o.Close()) }()

	all := startReaders(ctx, c, name, n)
	defer all.join()
	if err := all.untilEachHasRead(ctx); err != nil {
		return nil, err
	}
	var pairs uint64
	for r.window = max(r.window, shortest); pairs == 0; r.window *= 4 { // longer if the machine is busy with other work
		before, start := all.pairs.Load(), time.Now()
		requests, err := requestsWhile(ctx, r, counts)
		if err != nil {
			return nil, err
		}
		pairs = all.pairs.Load() - before
		f = figures{pairsPerS: float64(pairs) / time.Since(start).Seconds(), requestsPerS: requests / r.window.Seconds()}
		if err := errors.Join(context.Cause(ctx), all.err()); err != nil {
			return nil, err
		}
	}
	if f[storeHolders], err = mostListed(ctx, lister, name, shortest); err != nil {
		return nil, err
	}
	all.join()
	return f, all.err()
}

// crowdOfReaders is a set of goroutines that use a name shared again and again.
type crowdOfReaders struct {
	group  sync.WaitGroup
	stop   atomic.Bool
	began  chan struct{} // closed when every goroutine has had the lock
	pairs  atomic.Uint64
	failed atomic.Pointer[error]
}

func startReaders(ctx context.Context, c *dlock.Client, name string, n int) *crowdOfReaders {
	r := &crowdOfReaders{began: make(chan struct{})}
	var waiting atomic.Int64
	waiting.Store(int64(n))
	for range n {
		r.group.Go(func() {
			for first := true; !r.stop.Load(); first = false {
				lease, err := c.Lock(ctx, name, dlock.WithShared())
				if err == nil {
					if first && waiting.Add(-1) == 0 {
						close(r.began)
					}
					time.Sleep(10 * time.Millisecond)
					err = lease.Unlock(ctx)
				}
				if err != nil {
					r.failed.Store(&err)
					return
				}
				r.pairs.Add(1)
			}
		})
	}
	return r
}

func (r *crowdOfReaders) untilEachHasRead(ctx context.Context) error {
	select {
	case <-r.began:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), r.err())
	}
}

func (r *crowdOfReaders) join() {
	r.stop.Store(true)
	r.group.Wait()
}

func (r *crowdOfReaders) err() error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	return nil
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
