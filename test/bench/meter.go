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
	servers subjects.Served
	asked   func() (map[string]float64, error)
	before  subjects.Work
}

// meter starts to observe the commands that reach the servers.
func (r round) meter(ctx context.Context) (*meter, error) {
	if r.servers == nil {
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

// spent is the difference of the servers' work.
type spent struct {
	asked    float64 // commands from clients
	executed float64 // including those inside scripts
	cpu      time.Duration
}

// close stops the observation. end returns its result.
func (m *meter) close() {
	if m != nil {
		_, _ = m.asked()
	}
}

// end returns false if nothing was measured.
func (m *meter) end(ctx context.Context) (spent, bool, error) {
	if m == nil {
		return spent{}, false, nil
	}
	after, err := m.servers.Done(ctx)
	if err != nil {
		return spent{}, false, err
	}
	shares, err := m.asked()
	if err != nil {
		return spent{}, false, err
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
	return s, true, nil
}

// perPair adds the cost of a pair on the servers.
func (m *meter) perPair(ctx context.Context, f figures, pairs uint64) error {
	s, ok, err := m.end(ctx)
	if !ok || err != nil {
		return err
	}
	f[perPair] = s.asked / float64(pairs)
	f[executedPerPair] = s.executed / float64(pairs)
	f[serverCPUPerPair] = micros(s.cpu) / float64(pairs)
	return nil
}
