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

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// What the case handover does.
const (
	handoverGoroutines = 4 // of each process
	handoverHold       = time.Millisecond
	// After a release a goroutine pauses. If it tried again at once, the subject
	// that hands over least would look fastest: a polling waiter would find the
	// lock taken again by its last holder.
	handoverPause = time.Millisecond

	shortest = 100 * handoverHold // the shortest meaningful window
)

// handover lets 4 processes with 4 goroutines each contend for one lock. Each
// holds it for 1 ms, and tries again 1 ms after the release. Where processes
// cannot share the store, clients take their place.
var handover = kind{name: "handover", rounds: 5, run: func(ctx context.Context, r round) (figures, error) {
	return handoverAmong(ctx, r, 4)
}}

// growProcesses is handover with a growing number of processes.
var growProcesses = kind{name: "grow-processes", rounds: 1, points: doubling(64), run: func(ctx context.Context, r round) (figures, error) {
	// Every goroutine has time for two turns, at a tenth of the best rate: many processes that start
	// together need a while until they know of each other.
	r.window = max(r.window, 20*handoverHold*time.Duration(handoverGoroutines*r.at))
	return handoverAmong(ctx, r, r.at)
}}

func handoverAmong(ctx context.Context, r round, processes int) (figures, error) {
	return competeUntilMeasured(ctx, r, processes, handoverPlan, evaluate)
}

var handoverPlan = subjects.Plan{Name: "bench/handover", Goroutines: handoverGoroutines, Hold: handoverHold, Pause: handoverPause}

// competeUntilMeasured competes for longer and longer if nothing was measured.
func competeUntilMeasured(ctx context.Context, r round, processes int, p subjects.Plan, evaluate evaluation) (figures, error) {
	for {
		f, err := compete(ctx, r, processes, p, evaluate)
		if !errors.Is(err, errTooShort) || r.window > 10*time.Second {
			return f, err
		}
		r.window = 4 * max(r.window, shortest) // the machine is busy with other work
	}
}

// evaluation makes figures of the reports of all processes.
type evaluation func(reports []report, s span, p subjects.Plan) (figures, error)

func compete(ctx context.Context, r round, processes int, p subjects.Plan, evaluate evaluation) (f figures, err error) {
	contend := contendInClients
	if r.store.Processes {
		contend = contendInProcesses
	}
	m, err := r.meter(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close()
	reports, s, err := contend(ctx, r, m, processes, p)
	if err != nil {
		return nil, err
	}
	if f, err = evaluate(reports, s, p); err != nil {
		return nil, err
	}
	return f, m.perPair(ctx, f, countAcquisitions(reports))
}

// errTooShort reports that there are no samples for a median.
var errTooShort = errors.New("not one pair was measured")

// span is an interval of CLOCK_MONOTONIC, which all processes of a machine share.
type span struct {
	Start, Measured, End time.Duration // before Measured is the warm-up
}

// spanFor leaves all processes time to get ready.
func spanFor(window time.Duration) span {
	const ready = 20 * time.Millisecond
	start := monotonic() + ready
	measured := start + max(window/5, 20*handoverHold)
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
func contend(ctx context.Context, c subjects.Client, s span, p subjects.Plan) (report, error) {
	var (
		group  sync.WaitGroup
		mu     sync.Mutex // guards the variables below
		rep    report
		failed error
	)
	for i := range p.Goroutines {
		w, err := workersOf(ctx, c, p)
		if err != nil {
			return report{}, err
		}
		group.Go(func() {
			acquisitions, err := acquireRepeatedly(ctx, w, i, s, p)
			mu.Lock()
			defer mu.Unlock()
			rep.Acquisitions = append(rep.Acquisitions, acquisitions...)
			failed = errors.Join(failed, err)
		})
	}
	group.Wait()
	rep.Commands, rep.Counts = c.Commands()
	return rep, failed
}

// workers are what one goroutine needs: other is nil if all its acquisitions have one mode.
type workers struct{ usual, other subjects.Worker }

// workersOf returns those of a plan. The usual worker of a lock is exclusive, and the other one shared.
func workersOf(ctx context.Context, c subjects.Client, p subjects.Plan) (w workers, err error) {
	if p.Shared == 0 && p.Limit == 0 {
		w.usual, err = c.Worker(ctx, p.Name)
		return w, err
	}
	modes, ok := c.(subjects.ModeClient)
	if !ok {
		return w, errors.New("the subject has no modes")
	}
	w.usual, err = modes.ModeWorker(ctx, p.Name, driver.Mode{Limit: p.Limit})
	if p.Shared > 0 && err == nil {
		w.other, err = modes.ModeWorker(ctx, p.Name, driver.Mode{Shared: true})
	}
	return w, err
}

func acquireRepeatedly(ctx context.Context, all workers, goroutine int, s span, p subjects.Plan) ([]acquisition, error) {
	var acquisitions []acquisition
	time.Sleep(s.Start - monotonic())
	for monotonic() < s.End {
		w := all.usual
		exclusive := rand.IntN(100) >= p.Shared
		if !exclusive {
			w = all.other
		}
		t := acquisition{Goroutine: goroutine, Exclusive: exclusive, Asked: monotonic()}
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
		if p.Pause > 0 {
			time.Sleep(p.Pause)
		}
	}
	return acquisitions, nil
}

// contendInClients runs clients of this process in place of processes.
func contendInClients(ctx context.Context, r round, m *meter, n int, p subjects.Plan) (reports []report, s span, err error) {
	clients, err := connect(ctx, r.subject, r.dir, n)
	if err != nil {
		return nil, s, err
	}
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	reports = make([]report, len(clients))
	failures := make([]error, len(clients))
	if err := m.begin(ctx); err != nil {
		return nil, s, err
	}
	s = spanFor(r.window)
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { reports[i], failures[i] = contend(ctx, c, s, p) })
	}
	group.Wait()
	return reports, s, errors.Join(failures...)
}

func countAcquisitions(reports []report) (n uint64) {
	for _, rep := range reports {
		n += uint64(len(rep.Acquisitions))
	}
	return n
}

// evaluate merges the reports into one history of the lock.
func evaluate(reports []report, s span, p subjects.Plan) (figures, error) {
	history := merge(reports)
	var handovers []time.Duration
	for i, t := range history {
		if i > 0 {
			before := history[i-1]
			if t.Granted < before.Released {
				return nil, fmt.Errorf("%w: process %d was granted the lock %v before process %d gave it up",
					errNotExclusive, t.process, before.Released-t.Granted, before.process)
			}
			if waited := t.Asked < before.Released; waited && t.process != before.process && t.Granted >= s.Measured && t.Granted < s.End {
				handovers = append(handovers, t.Granted-before.Released)
			}
		}
	}
	f, err := rates(reports, history, s, p)
	if err != nil {
		return nil, err
	}
	f[handoversPerS] = float64(len(handovers)) / (s.End - s.Measured).Seconds()
	if len(handovers) > 0 {
		f[handoverP50], f[handoverP99] = micros(percentile(handovers, 50)), micros(percentile(handovers, 99))
	}
	return f, nil
}

// merge returns the acquisitions of all processes in the order of the grants.
func merge(reports []report) (history []acquisition) {
	for process, rep := range reports {
		for _, t := range rep.Acquisitions {
			t.process = process
			history = append(history, t)
		}
	}
	slices.SortFunc(history, func(a, b acquisition) int { return cmp.Compare(a.Granted, b.Granted) })
	return history
}

// rates returns the figures that do not depend on which holders exclude each other.
func rates(reports []report, history []acquisition, s span, p subjects.Plan) (figures, error) {
	shares := make([]uint64, len(reports)*p.Goroutines)
	var pairs, waits []time.Duration
	for _, t := range history {
		if t.Granted < s.Measured || t.Granted >= s.End {
			continue
		}
		shares[t.process*p.Goroutines+t.Goroutine]++
		waits = append(waits, t.Granted-t.Asked)
		pairs = append(pairs, t.Granted-t.Asked+t.Returned-t.Released)
	}
	if len(pairs) == 0 {
		return nil, errTooShort
	}
	f := figures{
		pairsPerS: float64(len(pairs)) / (s.End - s.Measured).Seconds(),
		p50:       micros(percentile(pairs, 50)),
		p99:       micros(percentile(pairs, 99)),
		p99Wait:   millis(percentile(waits, 99)),
		jain:      jainIndex(shares),
	}
	var commands uint64
	countable := true
	for _, rep := range reports {
		commands += rep.Commands
		countable = countable && rep.Counts
	}
	if countable {
		f[perPair] = float64(commands) / float64(len(history))
	}
	return f, nil
}
