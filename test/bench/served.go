package main

import (
	"context"
	"time"
)

// served is the servers of a store, which run for all rounds of a case.
type served interface {
	// prepare empties them and leaves in dir what clients need to find them,
	// those in other processes too.
	prepare(ctx context.Context, dir string) error
	// done is what they did so far.
	done(ctx context.Context) (work, error)
	// listen looks at what they are asked from now on, until stop is called or
	// it has seen enough. Stop may be called twice. It returns for each command
	// which share of it clients asked for: the rest is what their scripts do. It
	// is nil where the servers cannot tell what they did.
	listen(ctx context.Context) (stop func() (asked map[string]float64, err error), err error)
	stop() error
}

// work is what servers do.
type work struct {
	commands map[string]uint64 // by name; also those inside scripts
	cpu      time.Duration
}

// meter tells what the servers did between begin and end. A nil one, for a
// store that has none or whose servers cannot tell, tells nothing.
type meter struct {
	servers served
	asked   func() (map[string]float64, error)
	before  work
}

// meter starts to look at what the servers are asked.
func (r round) meter(ctx context.Context) (*meter, error) {
	if r.servers == nil {
		return nil, nil
	}
	asked, err := r.servers.listen(ctx)
	if err != nil || asked == nil {
		return nil, err
	}
	return &meter{servers: r.servers, asked: asked}, nil
}

func (m *meter) begin(ctx context.Context) (err error) {
	if m != nil {
		m.before, err = m.servers.done(ctx)
	}
	return err
}

// spent is what servers did for something.
type spent struct {
	asked    float64 // commands from clients
	executed float64 // with those inside scripts
	cpu      time.Duration
}

// close ends the looking. What came of it, end tells.
func (m *meter) close() {
	if m != nil {
		_, _ = m.asked()
	}
}

// end returns false if there is nothing to tell.
func (m *meter) end(ctx context.Context) (spent, bool, error) {
	if m == nil {
		return spent{}, false, nil
	}
	after, err := m.servers.done(ctx)
	if err != nil {
		return spent{}, false, err
	}
	shares, err := m.asked()
	if err != nil {
		return spent{}, false, err
	}
	s := spent{cpu: after.cpu - m.before.cpu}
	for name, n := range after.commands {
		executed := float64(n - m.before.commands[name])
		share, seen := shares[name]
		if !seen {
			share = 1
		}
		s.executed += executed
		s.asked += executed * share
	}
	return s, true, nil
}

// perPair adds what one of so many pairs cost the servers.
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
