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

// Work is the work of servers.
type Work struct {
	Commands map[string]uint64 // by name; including those inside scripts
	CPU      time.Duration
}

// Done returns the work of the servers so far.
func (s *Servers) Done(ctx context.Context) (w Work, err error) {
	if w.Commands, err = s.count(ctx); err != nil {
		return Work{}, err
	}
	for _, server := range s.all {
		cpu, err := cpuOf(server.PID())
		if err != nil {
			return Work{}, err
		}
		w.CPU += cpu
	}
	return w, nil
}

// cpuOf returns the CPU time of a process and of all its threads, also of those that have ended.
func cpuOf(pid int) (time.Duration, error) {
	const scheduled = 2 // the clock of a process, as in clock_getcpuclockid(3)
	var used unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|scheduled), &used)
	return time.Duration(used.Nano()), err
}

// Listen is listen for servers that count their work; stop is nil for others.
func (s *Servers) Listen(ctx context.Context) (stop func() (asked map[string]float64, err error), err error) {
	switch {
	case s == nil || s.count == nil:
		return nil, nil
	case s.listen == nil:
		return func() (map[string]float64, error) { return nil, nil }, nil
	}
	return s.listen(ctx)
}
