package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// What processes do in the cases handover, readers and permits. Where they cannot
// share the store, clients take their place.
var (
	// After a release a goroutine pauses. If it tried again at once, the subject
	// that hands over least would look fastest: a polling waiter would find the
	// lock taken again by its last holder.
	handoverPlan = subjects.Plan{Name: "bench/handover", Goroutines: 4, Hold: time.Millisecond, Pause: time.Millisecond}
	readersPlan  = subjects.Plan{Name: "bench/readers", Goroutines: 16, Hold: time.Millisecond, Shared: 95}
	permitsPlan  = subjects.Plan{Name: "bench/permits", Goroutines: 16, Hold: time.Millisecond, Limit: 8}
)

const (
	processes = 4
	shortest  = 100 * time.Millisecond // the shortest meaningful window
)

// runHandover lets processes contend for one lock: 4, or as many as the point of a
// curve.
func runHandover(ctx context.Context, r round) (figures, error) {
	if r.at > 0 {
		// Every goroutine has time for two turns, at a tenth of the best rate: many processes that start
		// together need a while until they know of each other.
		r.window = max(r.window, 20*handoverPlan.Hold*time.Duration(handoverPlan.Goroutines*r.at))
	}
	return r.compete(ctx, cmp.Or(r.at, processes), handoverPlan)
}

func runReaders(ctx context.Context, r round) (figures, error) {
	return r.compete(ctx, processes, readersPlan)
}
func runPermits(ctx context.Context, r round) (figures, error) {
	return r.compete(ctx, processes, permitsPlan)
}

// compete measures for longer and longer if nothing was measured.
func (r round) compete(ctx context.Context, processes int, p subjects.Plan) (figures, error) {
	if r.subject.Exclusive {
		p.Shared, p.Limit = 0, 0
	}
	for {
		f, err := r.competeOnce(ctx, processes, p)
		if !errors.Is(err, errTooShort) || r.window > 10*time.Second {
			return f, err
		}
		r.window = 4 * max(r.window, shortest) // the machine is busy with other work
	}
}

func (r round) competeOnce(ctx context.Context, processes int, p subjects.Plan) (figures, error) {
	m, err := r.meter(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	reports, s, err := r.participants(ctx, m, processes, p)
	if err != nil {
		return nil, err
	}
	f, err := evaluate(reports, s, p)
	if err != nil {
		return nil, err
	}
	var pairs uint64
	for _, rep := range reports {
		pairs += uint64(len(rep.Acquisitions))
	}
	return f, costOf(ctx, m, f, pairs)
}

// span is an interval of CLOCK_MONOTONIC, which all processes of a machine share.
type span struct {
	Start, Measured, End time.Duration // before Measured is the warm-up
}

// spanFor leaves all processes time to get ready.
func spanFor(window time.Duration) span {
	const ready, warm = 20 * time.Millisecond, 20 * time.Millisecond
	start := monotonic() + ready
	measured := start + max(window/5, warm)
	return span{start, measured, measured + max(window, shortest)}
}

// acquisition holds the times of one acquisition, on CLOCK_MONOTONIC.
type acquisition struct {
	Goroutine                          int
	Exclusive                          bool
	Asked, Granted, Released, Returned time.Duration

	process int // set when reports are merged
}

// report is the result of one process or client.
type report struct {
	Acquisitions []acquisition
	Commands     uint64
	Counts       bool // Commands is valid
}

// contend is the part of one process.
func contend(ctx context.Context, c *subjects.Client, s span, p subjects.Plan) (report, error) {
	var (
		group  sync.WaitGroup
		mu     sync.Mutex // guards the variables below
		rep    report
		failed error
	)
	for i := range p.Goroutines {
		exclusive, err := c.Worker(ctx, p.Want(false))
		shared := exclusive
		if p.Shared > 0 && err == nil {
			shared, err = c.Worker(ctx, p.Want(true))
		}
		if err != nil {
			return report{}, err
		}
		group.Go(func() {
			acquisitions, err := acquireRepeatedly(ctx, exclusive, shared, i, s, p)
			mu.Lock()
			defer mu.Unlock()
			rep.Acquisitions = append(rep.Acquisitions, acquisitions...)
			failed = errors.Join(failed, err)
		})
	}
	group.Wait()
	if rep.Counts = c.Commands != nil; rep.Counts {
		rep.Commands = c.Commands()
	}
	return rep, failed
}

func acquireRepeatedly(
	ctx context.Context, exclusive, shared subjects.Worker, goroutine int, s span, p subjects.Plan,
) (acquisitions []acquisition, err error) {
	time.Sleep(s.Start - monotonic())
	for monotonic() < s.End {
		w := exclusive
		t := acquisition{Goroutine: goroutine, Exclusive: rand.IntN(100) >= p.Shared, Asked: monotonic()}
		if !t.Exclusive {
			w = shared
		}
		if err := w.Lock(ctx); err != nil {
			return nil, err
		}
		t.Granted = monotonic()
		time.Sleep(p.Hold)
		t.Released = monotonic()
		if err := w.Unlock(ctx); err != nil {
			return nil, err
		}
		t.Returned = monotonic()
		acquisitions = append(acquisitions, t)
		time.Sleep(p.Pause)
	}
	return acquisitions, nil
}

// errTooShort reports that there are no samples for a median.
var errTooShort = errors.New("not one pair was measured")

// evaluate merges the reports into one history of the lock.
func evaluate(reports []report, s span, p subjects.Plan) (figures, error) {
	var history []acquisition // in the order of the grants
	var commands uint64
	countable := true
	for process, rep := range reports {
		for _, t := range rep.Acquisitions {
			t.process = process
			history = append(history, t)
		}
		commands += rep.Commands
		countable = countable && rep.Counts
	}
	slices.SortFunc(history, func(a, b acquisition) int { return cmp.Compare(a.Granted, b.Granted) })
	if err := checkHolders(history, p.Limit); err != nil {
		return nil, err
	}
	shares := make([]uint64, len(reports)*p.Goroutines)
	var pairs, waits, handovers []time.Duration
	for i, t := range history {
		if t.Granted < s.Measured || t.Granted >= s.End {
			continue
		}
		shares[t.process*p.Goroutines+t.Goroutine]++
		waits = append(waits, t.Granted-t.Asked)
		pairs = append(pairs, t.Granted-t.Asked+t.Returned-t.Released)
		if i > 0 && t.process != history[i-1].process && t.Asked < history[i-1].Released {
			handovers = append(handovers, t.Granted-history[i-1].Released)
		}
	}
	if len(pairs) == 0 {
		return nil, errTooShort
	}
	seconds := (s.End - s.Measured).Seconds()
	f := figures{
		pairsPerS: float64(len(pairs)) / seconds,
		p50:       micros(percentile(pairs, 50)),
		p99:       micros(percentile(pairs, 99)),
		p99Wait:   millis(percentile(waits, 99)),
		jain:      jainIndex(shares),
	}
	if countable {
		f[perPair] = float64(commands) / float64(len(history))
	}
	if p.Name == handoverPlan.Name {
		f[handoversPerS] = float64(len(handovers)) / seconds
		if len(handovers) > 0 {
			f[handoverP50], f[handoverP99] = micros(percentile(handovers, 50)), micros(percentile(handovers, 99))
		}
	}
	return f, nil
}

// checkHolders fails if there were holders at the same time that should have
// excluded each other. Of a grant and a release at the same moment the release
// counts first.
func checkHolders(history []acquisition, limit int) error {
	var inside []acquisition
	for _, t := range history {
		inside = slices.DeleteFunc(inside, func(other acquisition) bool { return other.Released <= t.Granted })
		if limit > 0 && len(inside) >= limit {
			return fmt.Errorf("%w: %d holders at a time; the limit is %d", errNotExclusive, len(inside)+1, limit)
		}
		for _, other := range inside {
			if limit == 0 && (t.Exclusive || other.Exclusive) {
				return fmt.Errorf("%w: process %d was granted the lock %v before process %d gave it up",
					errNotExclusive, t.process, other.Released-t.Granted, other.process)
			}
		}
		inside = append(inside, t)
	}
	return nil
}
