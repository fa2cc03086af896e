package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// held lets one client hold many locks. It measures the memory of each lock, and
// the CPU time of renewing all of them.
var held = kind{name: "held", rounds: 1, clientOnly: true, run: func(ctx context.Context, r round) (f figures, err error) {
	open, err := r.store.Open(r.dir)
	if err != nil {
		return nil, err
	}
	o, err := open(ctx)
	if err != nil {
		return nil, err
	}
	counts := subjects.Count(o.Store)
	ttl := heldTTL(r.budget)
	goroutines, before := runtime.NumGoroutine(), footprintNow()
	c := dlock.New(counts.Always(), &dlock.Options{TTL: ttl})
	defer func() { err = errors.Join(err, c.Close(), o.Close()) }()

	n := r.store.Held
	leases, rate, err := hold(ctx, c, n)
	if err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	f = figures{
		leaseCount:       float64(n),
		acquisitionsPerS: rate,
		bytesPerLease:    float64(used.heap+used.stack) / float64(n),
		goroutinesAdded:  float64(runtime.NumGoroutine() - goroutines),
		ttlSeconds:       ttl.Seconds(),
	}
	if err := observe(ctx, r, f, counts, 2*ttl/3); err != nil {
		return nil, err
	}
	for _, lease := range leases {
		if err := context.Cause(lease.Context()); err != nil {
			return nil, fmt.Errorf("%s did not stay held: %w", lease.Name(), err)
		}
	}
	return f, nil
}}

// growHeld measures one goroutine without contention while its client holds a
// growing number of other locks.
var growHeld = kind{name: "grow-held", rounds: 1, clientOnly: true, points: powersOfTen(100_000), run: func(ctx context.Context, r round) (f figures, err error) {
	run, err := load{goroutines: 1, name: func(int) string { return "bench/beside" }}.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.client.Close()) }()
	before := footprintNow()
	if err := holdTogether(ctx, run.client, r.at); err != nil {
		return nil, err
	}
	used := footprintNow().minus(before)
	if f, err = run.counted(ctx, r.window); err != nil {
		return nil, err
	}
	f[leaseCount] = float64(r.at)
	if r.at >= measurable {
		f[bytesPerLease] = float64(used.heap+used.stack) / float64(r.at)
	}
	return f, run.summary(f)
}}

// holdTogether acquires n locks from several goroutines, because a store may
// carry out calls that arrive together in one write.
func holdTogether(ctx context.Context, c subjects.Client, n int) error {
	const goroutines = 64
	failures := make([]error, goroutines)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := g; i < n && failures[g] == nil; i += goroutines {
				w, err := c.Worker(ctx, fmt.Sprintf("bench/held/%d", i))
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

// heldTTL returns the default TTL, or a shorter one if the budget is too small.
// The cost of renewal is inversely proportional to the TTL, so the result
// includes it.
func heldTTL(budget time.Duration) time.Duration {
	if budget < 3*time.Second {
		return 3 * time.Second
	}
	return dlock.DefaultTTL
}

func hold(ctx context.Context, c *dlock.Client, n int) (leases []*dlock.Lease, rate float64, err error) {
	leases = make([]*dlock.Lease, n)
	start := time.Now()
	for i := range leases {
		if leases[i], err = c.Lock(ctx, fmt.Sprintf("bench/held/%d", i)); err != nil {
			return nil, 0, err
		}
	}
	return leases, float64(n) / time.Since(start).Seconds(), nil
}

// observe adds the figures of an idle client, in which only the watchdog runs.
func observe(ctx context.Context, r round, f figures, counts *subjects.Counted, window time.Duration) error {
	m, err := r.meter(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.begin(ctx); err != nil {
		return err
	}
	cpu, err := cpuTime()
	if err != nil {
		return err
	}
	calls, renewals := counts.Calls.Load(), counts.Renewals.Load()
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := cpuTime()
	if err != nil {
		return err
	}
	f[renewCPUShare] = (after - cpu).Seconds() / window.Seconds()
	f[requestsPerS] = float64(counts.Calls.Load()-calls) / window.Seconds()
	renewed := float64(counts.Renewals.Load() - renewals)
	f[renewalsPerS] = renewed / window.Seconds()
	s, ok, err := m.end(ctx)
	if ok && renewed > 0 {
		f[requestsPerS] = s.asked / window.Seconds()
		f[requestsPerRenewal] = s.asked / renewed * f[leaseCount]
		f[serverCPUShare] = s.cpu.Seconds() / window.Seconds()
	}
	return err
}
