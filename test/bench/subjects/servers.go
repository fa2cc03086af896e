package subjects

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
	"golang.org/x/sys/unix"
)

// Servers are those of a store, which run for all of its cases.
type Servers struct {
	all []*servers.Server

	// Empty removes all locks.
	Empty func(ctx context.Context) error

	// count returns the number of commands so far, by name, including those inside
	// scripts; nil if the servers do not count.
	count func(ctx context.Context) (map[string]uint64, error)

	// listen observes the commands that arrive from now on, until stop is called
	// or the sample is large enough. stop may be called twice. It returns the
	// share of each command that came from clients: the rest came from their
	// scripts. nil if all commands come from clients.
	listen func(ctx context.Context) (stop func() (asked map[string]float64, err error), err error)

	// disconnect closes the connections that these functions use.
	disconnect func() error
}

// start starts n servers at once.
func start(kind *servers.Kind, n int, args ...string) (*Servers, error) {
	started := make([]*servers.Server, n)
	failures := make([]error, n)
	var group sync.WaitGroup
	for i := range started {
		group.Go(func() { started[i], failures[i] = servers.Start(kind, args...) })
	}
	group.Wait()
	s := &Servers{disconnect: func() error { return nil }}
	for _, server := range started {
		if server != nil {
			s.all = append(s.all, server)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Addrs returns the addresses of the servers.
func (s *Servers) Addrs() (addrs []string) {
	for _, server := range s.all {
		addrs = append(addrs, server.Addr())
	}
	return addrs
}

// Stop ends the servers, if there are any.
func (s *Servers) Stop() error {
	if s == nil {
		return nil
	}
	err := s.disconnect()
	for _, server := range s.all {
		err = errors.Join(err, server.Stop())
	}
	return err
}

// cpuOf returns the CPU time of a process and of all its threads, also of those that have ended.
func cpuOf(pid int) (time.Duration, error) {
	const scheduled = 2 // the clock of a process, as in clock_getcpuclockid(3)
	var used unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|scheduled), &used)
	return time.Duration(used.Nano()), err
}

// Meter measures the work of the servers between Begin and End. A nil meter
// measures nothing: it is for stores without servers, and for servers that do not
// count.
type Meter struct {
	servers *Servers
	asked   func() (map[string]float64, error)
	before  map[string]uint64
	cpu     time.Duration
}

// Meter starts to observe the commands that reach the servers.
func (s *Servers) Meter(ctx context.Context) (m *Meter, err error) {
	if s == nil || s.count == nil {
		return nil, nil
	}
	m = &Meter{servers: s, asked: func() (map[string]float64, error) { return nil, nil }}
	if s.listen != nil {
		m.asked, err = s.listen(ctx)
	}
	return m, err
}

// Begin begins the measurement.
func (m *Meter) Begin(ctx context.Context) (err error) {
	if m != nil {
		m.before, m.cpu, err = m.servers.done(ctx)
	}
	return err
}

// Close stops the observation. End returns its result.
func (m *Meter) Close() {
	if m != nil {
		_, _ = m.asked()
	}
}

// Work is what the servers did.
type Work struct {
	Asked    float64 // commands from clients
	Executed float64 // including those inside scripts
	CPU      time.Duration
}

// End returns nil if nothing was measured.
func (m *Meter) End(ctx context.Context) (*Work, error) {
	if m == nil {
		return nil, nil
	}
	after, cpu, err := m.servers.done(ctx)
	if err != nil {
		return nil, err
	}
	shares, err := m.asked()
	if err != nil {
		return nil, err
	}
	w := Work{CPU: cpu - m.cpu}
	for name, n := range after {
		executed := float64(n - m.before[name])
		share, seen := shares[name]
		if !seen {
			share = 1
		}
		w.Executed += executed
		w.Asked += executed * share
	}
	return &w, nil
}

// done returns the commands and the CPU time of the servers so far.
func (s *Servers) done(ctx context.Context) (commands map[string]uint64, cpu time.Duration, err error) {
	if commands, err = s.count(ctx); err != nil {
		return nil, 0, err
	}
	for _, server := range s.all {
		used, err := cpuOf(server.PID())
		if err != nil {
			return nil, 0, err
		}
		cpu += used
	}
	return commands, cpu, nil
}
