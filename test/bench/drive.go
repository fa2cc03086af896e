package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// load is the common part of the cases without holding: goroutines of one process
// lock and unlock as fast as they can.
type load struct {
	goroutines int
	name       func(goroutine int) string
	shared     *occupancy // nil if every goroutine has a lock of its own
}

// tally is the raw result of a load.
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
	run, err := l.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.client.Close()) }()
	f, err = run.counted(ctx, r.window)
	if err != nil {
		return nil, err
	}
	return f, run.summary(f)
}

// running is a load on a subject that is open and warm.
type running struct {
	load
	round   round
	client  subjects.Client
	workers []subjects.Worker
	every   uint64 // one of this many pairs is timed
	tally   tally  // of all calls of drive
}

// open opens the subject and warms it up.
func (l load) open(ctx context.Context, r round) (_ *running, err error) {
	clients, err := connect(ctx, r.subject, r.dir, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(clients))
		}
	}()
	run := &running{load: l, round: r, client: clients[0], workers: make([]subjects.Worker, l.goroutines)}
	for i := range run.workers {
		if run.workers[i], err = run.client.Worker(ctx, l.name(i)); err != nil {
			return nil, err
		}
	}
	warm, err := l.drive(ctx, run.workers, r.window/5, 1)
	if err != nil {
		return nil, err
	}
	run.every = sampling(warm)
	run.tally.shares = make([]uint64, l.goroutines)
	return run, nil
}

// drive drives the load once more.
func (run *running) drive(ctx context.Context, window time.Duration) error {
	t, err := run.load.drive(ctx, run.workers, window, run.every)
	all := &run.tally
	all.elapsed += t.elapsed
	for i, n := range t.shares {
		all.shares[i] += n
	}
	all.pairs, all.waits = append(all.pairs, t.pairs...), append(all.waits, t.waits...)
	return err
}

// counted drives the load and measures the work of the servers.
func (run *running) counted(ctx context.Context, window time.Duration) (figures, error) {
	m, err := run.sample(ctx, run.round, run.workers)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	before, countable := run.client.Commands()
	pairs := run.tally.total()
	if err := run.drive(ctx, window); err != nil {
		return nil, err
	}
	pairs = run.tally.total() - pairs
	f := make(figures)
	if after, _ := run.client.Commands(); countable {
		f[perPair] = float64(after-before) / float64(pairs)
	}
	return f, m.perPair(ctx, f, pairs)
}

// summary adds the figures of all calls of drive.
func (run *running) summary(f figures) error {
	t := &run.tally
	f[pairsPerS] = float64(t.total()) / t.elapsed.Seconds()
	f[p50] = micros(percentile(t.pairs, 50))
	f[p99] = micros(percentile(t.pairs, 99))
	if run.goroutines > 1 {
		f[jain] = jainIndex(t.shares)
	}
	if run.shared != nil {
		f[p99Wait] = millis(percentile(t.waits, 99))
		return run.shared.check()
	}
	return nil
}

// sample drives the load for a moment, in which the meter observes it.
func (l load) sample(ctx context.Context, r round, workers []subjects.Worker) (*meter, error) {
	m, err := r.meter(ctx)
	if m == nil || err != nil {
		return nil, err
	}
	defer m.close()
	_, err = l.drive(ctx, workers, r.window/20, 1)
	return m, err
}

// sampling returns how many pairs share one timed pair. Reading the clock costs
// as much as a lock in memory, and would hide the differences between the
// subjects.
func sampling(warm tally) uint64 {
	const slow, one = 20 * time.Microsecond, 64
	if n := warm.total(); warm.elapsed*time.Duration(len(warm.shares))/time.Duration(n) > slow {
		return 1
	}
	return one
}

func (l load) drive(ctx context.Context, workers []subjects.Worker, window time.Duration, every uint64) (tally, error) {
	var (
		stop   atomic.Bool
		group  sync.WaitGroup
		mu     sync.Mutex // guards the variables below
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

// work is the measured loop. It makes at least one pair, however short the time.
func (l load) work(ctx context.Context, w subjects.Worker, stop *atomic.Bool, every uint64) (tally, error) {
	start := time.Now()
	t := tally{shares: []uint64{0}}
	var n uint64
	for ; n == 0 || !stop.Load(); n++ {
		if n%every != 0 {
			if err := w.Lock(ctx); err != nil {
				return t, err
			}
			l.visit()
			if err := w.Unlock(ctx); err != nil {
				return t, err
			}
			continue
		}
		asked := time.Since(start)
		if err := w.Lock(ctx); err != nil {
			return t, err
		}
		granted := time.Since(start)
		l.visit()
		if err := w.Unlock(ctx); err != nil {
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
