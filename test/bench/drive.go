package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// load is what the cases without holding have in common: goroutines of one
// process that lock and unlock as fast as they can.
type load struct {
	goroutines int
	name       func(goroutine int) string
	shared     *room // nil where every goroutine has a lock of its own
}

// tally is what driving a load gave.
type tally struct {
	elapsed time.Duration
	shares  []uint64 // pairs per goroutine
	pairs   []time.Duration
	waits   []time.Duration
}

func (t *tally) total() (n uint64) {
	for _, s := range t.shares {
		n += s
	}
	return n
}

// measure warms the subject up and then drives the load for the window.
func (l load) measure(ctx context.Context, r round) (f figures, err error) {
	clients, err := connect(ctx, r.subject, r.dir, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	workers := make([]worker, l.goroutines)
	for i := range workers {
		if workers[i], err = clients[0].worker(ctx, l.name(i)); err != nil {
			return nil, err
		}
	}
	warm, err := l.drive(ctx, workers, r.window/5, 1)
	if err != nil {
		return nil, err
	}
	m, err := l.sample(ctx, r, workers)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	before, countable := clients[0].commands()
	t, err := l.drive(ctx, workers, r.window, sampling(warm))
	if err != nil {
		return nil, err
	}
	f = figures{
		pairsPerS: float64(t.total()) / t.elapsed.Seconds(),
		p50:       micros(percentile(t.pairs, 50)),
		p99:       micros(percentile(t.pairs, 99)),
	}
	if after, _ := clients[0].commands(); countable {
		f[perPair] = float64(after-before) / float64(t.total())
	}
	if err := m.perPair(ctx, f, t.total()); err != nil {
		return nil, err
	}
	if l.goroutines > 1 {
		f[jain] = jainIndex(t.shares)
	}
	if l.shared != nil {
		f[p99Wait] = millis(percentile(t.waits, 99))
		err = l.shared.check()
	}
	return f, err
}

// sample drives the load for a moment, in which the meter looks at it.
func (l load) sample(ctx context.Context, r round, workers []worker) (*meter, error) {
	m, err := r.meter(ctx)
	if m == nil || err != nil {
		return nil, err
	}
	defer m.close()
	_, err = l.drive(ctx, workers, r.window/20, 1)
	return m, err
}

// sampling says of how many pairs one has its time taken. Looking at the clock
// costs as much as a lock in memory, and would make every subject look alike.
func sampling(warm tally) uint64 {
	const slow, one = 20 * time.Microsecond, 64
	if n := warm.total(); warm.elapsed*time.Duration(len(warm.shares))/time.Duration(n) > slow {
		return 1
	}
	return one
}

func (l load) drive(ctx context.Context, workers []worker, window time.Duration, every uint64) (tally, error) {
	var (
		stop   atomic.Bool
		group  sync.WaitGroup
		mu     sync.Mutex // of all below
		all    = tally{shares: make([]uint64, len(workers))}
		failed error
	)
	begin := make(chan struct{})
	for i, w := range workers {
		group.Go(func() {
			<-begin
			mine, err := l.work(ctx, w, &stop, every)
			if err != nil {
				stop.Store(true)
			}
			mu.Lock()
			defer mu.Unlock()
			all.shares[i] = mine.shares[0]
			all.pairs, all.waits = append(all.pairs, mine.pairs...), append(all.waits, mine.waits...)
			if failed == nil {
				failed = err
			}
		})
	}
	start := time.Now()
	close(begin)
	select {
	case <-time.After(window):
	case <-ctx.Done():
	}
	stop.Store(true)
	group.Wait()
	all.elapsed = time.Since(start)
	return all, failed
}

// work is the loop that is measured. It makes one pair at least, however short
// the time.
func (l load) work(ctx context.Context, w worker, stop *atomic.Bool, every uint64) (tally, error) {
	start := time.Now()
	t := tally{shares: []uint64{0}}
	var n uint64
	for ; n == 0 || !stop.Load(); n++ {
		if n%every != 0 {
			if err := w.lock(ctx); err != nil {
				return t, err
			}
			l.visit()
			if err := w.unlock(ctx); err != nil {
				return t, err
			}
			continue
		}
		asked := time.Since(start)
		if err := w.lock(ctx); err != nil {
			return t, err
		}
		granted := time.Since(start)
		l.visit()
		if err := w.unlock(ctx); err != nil {
			return t, err
		}
		t.pairs = append(t.pairs, time.Since(start)-asked)
		t.waits = append(t.waits, granted-asked)
	}
	t.shares[0] = n
	return t, nil
}

func (l load) visit() {
	if l.shared != nil {
		l.shared.enter()
		l.shared.leave()
	}
}
