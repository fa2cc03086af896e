package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// load is the common part of the cases without holding: goroutines of one process
// lock and unlock as fast as they can.
type load struct {
	round
	shared  *occupancy // nil if every goroutine has a lock of its own
	client  *subjects.Client
	workers []*worker
	every   uint64 // one of this many pairs is timed
	elapsed time.Duration
}

// worker is a goroutine with what it has measured.
type worker struct {
	subjects.Worker
	count        uint64
	pairs, waits []time.Duration
}

// openSolo opens a load of one goroutine without contention.
func openSolo(ctx context.Context, r round) (*load, error) {
	return r.openLoad(ctx, 1, nil, func(int) string { return "bench/solo/" + r.subject.Name })
}

// openMany opens a load of 64 goroutines, each with a lock of its own. It measures
// how much the locks of a busy process slow each other down.
func openMany(ctx context.Context, r round) (*load, error) {
	return r.openLoad(ctx, 64, nil, func(i int) string { return fmt.Sprintf("bench/many/%s/%d", r.subject.Name, i) })
}

// runCommands runs commands one after the other, alone and under a lock, and adds
// how much longer their median is than that of the command alone.
func runCommands(ctx context.Context, rounds []round) ([]figures, error) {
	all, err := interleaved(100*time.Millisecond, openSolo)(ctx, rounds)
	if err != nil {
		return nil, err
	}
	var bare float64
	for i, r := range rounds {
		if isFloor(r.subject.Name) {
			bare = all[i][p50]
		}
	}
	for _, f := range all {
		f[aboveBare] = (f[p50] - bare) / 1000
	}
	return all, nil
}

// runCrowd lets goroutines of one process contend for one lock, which they release
// at once: 16, or as many as the point of a curve.
func runCrowd(ctx context.Context, r round) (f figures, err error) {
	l, err := r.openLoad(ctx, cmp.Or(r.at, 16), new(occupancy), func(int) string { return "bench/crowd" })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.client.Close()) }()
	if f, err = l.counted(ctx, r.window); err != nil {
		return nil, err
	}
	return f, l.summary(f)
}

// interleaved measures loads that are all open at once, in alternating slices. A
// disturbance of the machine that is longer than a slice affects all of them alike.
func interleaved(
	slice time.Duration, open func(context.Context, round) (*load, error),
) func(context.Context, []round) ([]figures, error) {
	return func(ctx context.Context, rounds []round) (results []figures, err error) {
		var all []*load
		defer func() {
			for _, l := range all {
				err = errors.Join(err, l.client.Close())
			}
		}()
		for _, r := range rounds {
			l, err := open(ctx, r)
			if err != nil {
				return nil, r.failed(err)
			}
			all = append(all, l)
			f, err := l.counted(ctx, r.window/4)
			if err != nil {
				return nil, r.failed(err)
			}
			results = append(results, f)
			l.reset()
		}
		for n, left := 0, rounds[0].window; left > 0; n, left = n+1, left-slice {
			for i := range all {
				l := all[(i+n)%len(all)]
				if err := l.drive(ctx, min(slice, left)); err != nil {
					return nil, l.failed(err)
				}
			}
		}
		for i, l := range all {
			if err := l.summary(results[i]); err != nil {
				return nil, l.failed(err)
			}
		}
		return results, nil
	}
}

// openLoad opens the subject and warms it up.
func (r round) openLoad(
	ctx context.Context, goroutines int, shared *occupancy, name func(int) string,
) (_ *load, err error) {
	l := &load{round: r, shared: shared, every: 1}
	if l.client, err = r.subject.Open(ctx, r.place); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.client.Close())
		}
	}()
	for i := range goroutines {
		w, err := l.client.Worker(ctx, subjects.Want{Name: name(i)})
		if err != nil {
			return nil, err
		}
		l.workers = append(l.workers, &worker{Worker: w})
	}
	if err := l.drive(ctx, r.window/5); err != nil {
		return nil, err
	}
	// Reading the clock costs as much as a lock in memory, and would hide the
	// differences between the subjects.
	const quick, few = 20 * time.Microsecond, 64
	if l.elapsed*time.Duration(goroutines)/time.Duration(l.total()) <= quick {
		l.every = few
	}
	return l, nil
}

// reset forgets what was measured.
func (l *load) reset() {
	l.elapsed = 0
	for _, w := range l.workers {
		w.count, w.pairs, w.waits = 0, nil, nil
	}
}

func (l *load) total() (n uint64) {
	for _, w := range l.workers {
		n += w.count
	}
	return n
}

// counted drives the load and measures the work of the servers.
func (l *load) counted(ctx context.Context, window time.Duration) (figures, error) {
	m, err := l.meter(ctx)
	if err != nil {
		return nil, err
	}
	if m != nil { // a sample, because observing all commands would slow the server down
		err = l.drive(ctx, l.window/20)
		m.Close()
	}
	l.reset()
	if err = errors.Join(err, m.Begin(ctx)); err != nil {
		return nil, err
	}
	var before uint64
	if l.client.Commands != nil {
		before = l.client.Commands()
	}
	if err := l.drive(ctx, window); err != nil {
		return nil, err
	}
	f := make(figures)
	if l.client.Commands != nil {
		f[perPair] = float64(l.client.Commands()-before) / float64(l.total())
	}
	return f, costOf(ctx, m, f, l.total())
}

// summary adds the figures of all calls of drive since the last reset.
func (l *load) summary(f figures) error {
	var pairs, waits []time.Duration
	var shares []uint64
	for _, w := range l.workers {
		pairs, waits, shares = append(pairs, w.pairs...), append(waits, w.waits...), append(shares, w.count)
	}
	f[pairsPerS] = float64(l.total()) / l.elapsed.Seconds()
	f[p50] = micros(percentile(pairs, 50))
	f[p99] = micros(percentile(pairs, 99))
	if len(l.workers) > 1 {
		f[jain] = jainIndex(shares)
	}
	if l.shared != nil {
		f[p99Wait] = millis(percentile(waits, 99))
		return l.shared.check()
	}
	return nil
}

// drive drives the load once more.
func (l *load) drive(ctx context.Context, window time.Duration) error {
	var stop atomic.Bool
	var group sync.WaitGroup
	failures := make([]error, len(l.workers))
	begin := make(chan struct{})
	for i, w := range l.workers {
		group.Go(func() {
			<-begin
			if failures[i] = l.work(ctx, w, &stop); failures[i] != nil {
				stop.Store(true)
			}
		})
	}
	start := time.Now()
	close(begin)
	_ = sleep(ctx, window) // the workers return the end of the context
	stop.Store(true)
	group.Wait()
	l.elapsed += time.Since(start)
	if failed := slices.IndexFunc(failures, func(err error) bool { return err != nil }); failed >= 0 {
		return failures[failed]
	}
	return nil
}

// work is the measured loop. It makes at least one pair, however short the time.
func (l *load) work(ctx context.Context, w *worker, stop *atomic.Bool) error {
	start := time.Now()
	var asked, granted time.Duration
	for n := uint64(0); n == 0 || !stop.Load(); n++ {
		timed := n%l.every == 0
		if timed {
			asked = time.Since(start)
		}
		if err := w.Lock(ctx); err != nil {
			return err
		}
		if timed {
			granted = time.Since(start)
		}
		if l.shared != nil {
			l.shared.enter()
			l.shared.leave()
		}
		if err := w.Unlock(ctx); err != nil {
			return err
		}
		w.count++
		if timed {
			w.pairs, w.waits = append(w.pairs, time.Since(start)-asked), append(w.waits, granted-asked)
		}
	}
	return nil
}
