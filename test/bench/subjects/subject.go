// Package subjects holds what the benchmarks measure: every store with the subjects that
// lock in it, and the servers that they need.
package subjects

import (
	"context"
	"os/exec"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store is a store, with the subjects that lock in it. Each has a file; see
// Stores.
type Store struct {
	Name string

	// Open prepares the state of one round, in dir if it lives outside this
	// process, or opens it if it exists already.
	Open opener

	// Serve starts the servers; nil if the store needs none.
	Serve func(ctx context.Context) (Served, error)

	// Processes reports whether several processes can share the state.
	Processes bool

	// Held is the number of locks in the case held.
	Held int

	Subjects []Subject
}

// Stores are in the order of the measurements.
var Stores = []Store{Memory, sqlite, redisStore, memcachedStore, mysqlStore, postgresStore, etcdStore, zookeeperStore}

// Subject is a library or protocol that locks.
type Subject struct {
	Name string

	// Cases restricts the subject to these cases; nil means all.
	Cases []string

	// Shared and Limits report whether the subject has shared locks and semaphores.
	Shared, Limits bool

	// Exclusive makes every acquisition exclusive, to compare the modes with.
	Exclusive bool

	// Open returns a function that makes clients which share one state, each like
	// that of a separate process.
	Open func(dir string) (connect func(context.Context) (Client, error), err error)

	// Foreign, in place of Open, returns the program of a subject in another
	// language. It runs as one of the plan's processes and does what participate
	// does. An error for an empty dir explains why the program cannot run here: the
	// subject is skipped then.
	Foreign func(ctx context.Context, dir string, p Plan) (*exec.Cmd, error)

	// Command, in place of Open, returns a command that the case exec runs. An
	// error for an empty dir explains why it cannot run here: the subject is
	// skipped then.
	Command func(ctx context.Context, dir string) (*exec.Cmd, error)
}

// Absent explains why the subject cannot run here; nil if it can.
func (s Subject) Absent(ctx context.Context) error {
	var err error
	switch {
	case s.Foreign != nil:
		_, err = s.Foreign(ctx, "", Plan{})
	case s.Command != nil:
		_, err = s.Command(ctx, "")
	}
	return err
}

// Offers reports whether the subject takes part in a case with the mode.
func (s Subject) Offers(mode driver.Mode) bool {
	return (!mode.Shared || s.Shared) && (mode.Limit == 0 || s.Limits)
}

// only restricts a subject to some cases.
func (s Subject) only(cases ...string) Subject {
	s.Cases = cases
	return s
}

// shared says that a subject has shared locks.
func (s Subject) shared() Subject {
	s.Shared = true
	return s
}

// modes says that a subject has shared locks and semaphores.
func (s Subject) modes() Subject {
	s.Shared, s.Limits = true, true
	return s
}

// exclusive returns a variant of a subject for the cases with modes that it offers. The
// variant acquires exclusively.
func (s Subject) exclusive() Subject {
	s.Name += ExclusiveSuffix
	s.Exclusive = true
	return s.only("readers", "permits")
}

// ExclusiveSuffix ends the names of subjects that acquire exclusively in the cases
// with modes.
const ExclusiveSuffix = "/exclusive"

// Client is the access of one process to the locks.
type Client interface {
	// Worker returns what one goroutine needs to acquire and release the lock
	// name.
	Worker(ctx context.Context, name string) (Worker, error)
	// Commands returns the number of commands to the store so far; false if they
	// are not counted.
	Commands() (n uint64, ok bool)
	Close() error
}

// ModeClient is a Client with shared locks and semaphores.
type ModeClient interface {
	Client
	// ModeWorker is Worker in a mode.
	ModeWorker(ctx context.Context, name string, mode driver.Mode) (Worker, error)
}

// Worker acquires and releases one lock repeatedly. It keeps its state between
// the calls, so that measuring allocates nothing.
type Worker interface {
	Lock(ctx context.Context) error // blocks until the lock is acquired
	Unlock(ctx context.Context) error
}

// Served is the set of servers of a store, which run for all of its cases.
type Served interface {
	// Prepare empties the servers, and writes into dir what clients need to find
	// them, also clients in other processes.
	Prepare(ctx context.Context, dir string) error
	// Done returns the work of the servers so far.
	Done(ctx context.Context) (Work, error)
	// Listen observes the commands that arrive from now on, until stop is called
	// or the sample is large enough. stop may be called twice. It returns the
	// share of each command that came from clients: the rest came from their
	// scripts. stop is nil if the servers do not count their work.
	Listen(ctx context.Context) (stop func() (asked map[string]float64, err error), err error)
	Stop() error
}

// Work is the work of servers.
type Work struct {
	Commands map[string]uint64 // by name; including those inside scripts
	CPU      time.Duration
}

// Plan is what the goroutines of each process do in a case with processes.
type Plan struct {
	Name        string // of the lock
	Goroutines  int
	Hold, Pause time.Duration
	Shared      int // percentage of shared acquisitions
	Limit       int // of the semaphore; zero for a lock
}
