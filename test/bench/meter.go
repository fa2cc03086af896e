package main

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// meter starts to observe the commands that reach the servers.
func (r round) meter(ctx context.Context) (*subjects.Meter, error) {
	if r.subject.Command { // the time of a process hides that of the servers
		return nil, nil
	}
	return r.servers.Meter(ctx)
}

// costOf adds the cost of a pair on the servers.
func costOf(ctx context.Context, m *subjects.Meter, f figures, pairs uint64) error {
	work, err := m.End(ctx)
	if work != nil {
		f[perPair] = work.Asked / float64(pairs)
		f[executedPerPair] = work.Executed / float64(pairs)
		f[serverCPUPerPair] = micros(work.CPU) / float64(pairs)
	}
	return err
}

// observed is what happened in a window.
type observed struct {
	requests float64        // to the store
	renewals float64        // of leases
	cpu      time.Duration  // of this process
	work     *subjects.Work // nil if the servers do not count
}

// observe observes a client for a window.
func (r round) observe(ctx context.Context, counts *subjects.Counted, window time.Duration) (o observed, err error) {
	m, err := r.meter(ctx)
	if err != nil {
		return o, err
	}
	defer m.Close()
	if err := m.Begin(ctx); err != nil {
		return o, err
	}
	calls, renewals, cpu := counts.Calls.Load(), counts.Renewals.Load(), cpuTime()
	if err := sleep(ctx, window); err != nil {
		return o, err
	}
	o.cpu = cpuTime() - cpu
	o.renewals, o.requests = float64(counts.Renewals.Load()-renewals), float64(counts.Calls.Load()-calls)
	if o.work, err = m.End(ctx); o.work != nil {
		o.requests = o.work.Asked
	}
	return o, err
}
