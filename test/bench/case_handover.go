package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

const shortest = 100 * subjects.HandoverHold // the shortest meaningful window

// handover lets 4 processes with 4 goroutines each contend for one lock. Each
// holds it for 1 ms, and tries again 1 ms after the release. Where processes
// cannot share the store, clients take their place.
var handover = kind{name: "handover", rounds: 5, run: func(ctx context.Context, r round) (figures, error) {
	return handoverAmong(ctx, r, 4)
}}

// growProcesses is handover with a growing number of processes.
var growProcesses = kind{name: "grow-processes", rounds: 1, points: doubling(64), run: func(ctx context.Context, r round) (figures, error) {
	// Every goroutine has time for two turns.
	r.window = max(r.window, 2*subjects.HandoverHold*time.Duration(subjects.HandoverGoroutines*r.at))
	return handoverAmong(ctx, r, r.at)
}}

func handoverAmong(ctx context.Context, r round, processes int) (figures, error) {
	for {
		f, err := compete(ctx, r, processes)
		if !errors.Is(err, errTooShort) || r.window > 10*time.Second {
			return f, err
		}
		r.window = 4 * max(r.window, shortest) // the machine is busy with other work
	}
}

func compete(ctx context.Context, r round, processes int) (f figures, err error) {
	contend := contendInClients
	if r.store.Processes {
		contend = contendInProcesses
	}
	m, err := r.meter(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close()
	reports, s, err := contend(ctx, r, m, processes)
	if err != nil {
		return nil, err
	}
	if f, err = evaluate(reports, s); err != nil {
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
	measured := start + max(window/5, 20*subjects.HandoverHold)
	return span{start, measured, measured + max(window, shortest)}
}

// acquisition holds the times of one acquisition, on CLOCK_MONOTONIC.
type acquisition struct {
	Goroutine                          int
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
func contend(ctx context.Context, c subjects.Client, s span) (report, error) {
	const name = "bench/handover"
	var (
		group  sync.WaitGroup
		mu     sync.Mutex // guards the variables below
		rep    report
		failed error
	)
	for i := range subjects.HandoverGoroutines {
		w, err := c.Worker(ctx, name)
		if err != nil {
			return report{}, err
		}
		group.Go(func() {
			acquisitions, err := acquireRepeatedly(ctx, w, i, s)
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

func acquireRepeatedly(ctx context.Context, w subjects.Worker, goroutine int, s span) ([]acquisition, error) {
	var acquisitions []acquisition
	time.Sleep(s.Start - monotonic())
	for monotonic() < s.End {
		t := acquisition{Goroutine: goroutine, Asked: monotonic()}
		if err := w.Lock(ctx); err != nil {
			return nil, err
		}
		t.Granted = monotonic()
		time.Sleep(subjects.HandoverHold)
		t.Released = monotonic()
		if err := w.Unlock(ctx); err != nil {
			return nil, err
		}
		t.Returned = monotonic()
		acquisitions = append(acquisitions, t)
		time.Sleep(subjects.HandoverPause)
	}
	return acquisitions, nil
}

// contendInClients runs clients of this process in place of processes.
func contendInClients(ctx context.Context, r round, m *meter, n int) (reports []report, s span, err error) {
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
		group.Go(func() { reports[i], failures[i] = contend(ctx, c, s) })
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
func evaluate(reports []report, s span) (figures, error) {
	var history []acquisition
	var commands uint64
	countable := true
	for process, rep := range reports {
		commands += rep.Commands
		countable = countable && rep.Counts
		for _, t := range rep.Acquisitions {
			t.process = process
			history = append(history, t)
		}
	}
	slices.SortFunc(history, func(a, b acquisition) int { return int(a.Granted - b.Granted) })
	shares := make([]uint64, len(reports)*subjects.HandoverGoroutines)
	var pairs, waits, handovers []time.Duration
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
		if t.Granted < s.Measured || t.Granted >= s.End {
			continue
		}
		shares[t.process*subjects.HandoverGoroutines+t.Goroutine]++
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
	f[handoversPerS] = float64(len(handovers)) / (s.End - s.Measured).Seconds()
	if len(handovers) > 0 {
		f[handoverP50], f[handoverP99] = micros(percentile(handovers, 50)), micros(percentile(handovers, 99))
	}
	if countable {
		f[perPair] = float64(commands) / float64(len(history))
	}
	return f, nil
}
