package main

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// meter measures the work of the servers between begin and end. A nil meter
// measures nothing: it is for stores without servers, and for servers that do not
// count.
type meter struct {
	servers *subjects.Servers
	asked   func() (map[string]float64, error)
	before  subjects.Work
}

// meter starts to observe the commands that reach the servers.
func (r round) meter(ctx context.Context) (*meter, error) {
	if r.subject.Command { // the time of a process hides that of the servers
		return nil, nil
	}
	asked, err := r.servers.Listen(ctx)
	if err != nil || asked == nil {
		return nil, err
	}
	return &meter{servers: r.servers, asked: asked}, nil
}

func (m *meter) begin(ctx context.Context) (err error) {
	if m != nil {
		m.before, err = m.servers.Done(ctx)
	}
	return err
}

// close stops the observation. end returns its result.
func (m *meter) close() {
	if m != nil {
		_, _ = m.asked()
	}
}

// spent is the difference of the servers' work.
type spent struct {
	asked    float64 // commands from clients
	executed float64 // including those inside scripts
	cpu      time.Duration
}

// end returns nil if nothing was measured.
func (m *meter) end(ctx context.Context) (*spent, error) {
	if m == nil {
		return nil, nil
	}
	after, err := m.servers.Done(ctx)
	if err != nil {
		return nil, err
	}
	shares, err := m.asked()
	if err != nil {
		return nil, err
	}
	s := spent{cpu: after.CPU - m.before.CPU}
	for name, n := range after.Commands {
		executed := float64(n - m.before.Commands[name])
		share, seen := shares[name]
		if !seen {
			share = 1
		}
		s.executed += executed
		s.asked += executed * share
	}
	return &s, nil
}

// perPair adds the cost of a pair on the servers.
func (m *meter) perPair(ctx context.Context, f figures, pairs uint64) error {
	s, err := m.end(ctx)
	if s != nil {
		f[perPair] = s.asked / float64(pairs)
		f[executedPerPair] = s.executed / float64(pairs)
		f[serverCPUPerPair] = micros(s.cpu) / float64(pairs)
	}
	return err
}

// observed is what happened in a window.
type observed struct {
	requests float64       // to the store
	renewals float64       // of leases
	cpu      time.Duration // of this process
	spent    *spent        // nil if the servers do not count
}

// observe observes a client for a window.
func (r round) observe(ctx context.Context, counts *subjects.Counted, window time.Duration) (o observed, err error) {
	m, err := r.meter(ctx)
	if err != nil {
		return o, err
	}
	defer m.close()
	if err := m.begin(ctx); err != nil {
		return o, err
	}
	calls, renewals, cpu := counts.Calls.Load(), counts.Renewals.Load(), cpuTime()
	if err := sleep(ctx, window); err != nil {
		return o, err
	}
	o.cpu = cpuTime() - cpu
	o.renewals, o.requests = float64(counts.Renewals.Load()-renewals), float64(counts.Calls.Load()-calls)
	if o.spent, err = m.end(ctx); o.spent != nil {
		o.requests = o.spent.asked
	}
	return o, err
}
