// Package subjects holds what the benchmarks measure: every store with the subjects that
// lock in it, and the servers that they need.
package subjects

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store is a store, with the subjects that lock in it. Each has a file; see
// Stores.
type Store struct {
	Name string

	// Open opens dlock's own store.
	Open Opener

	// Serve starts the servers; nil if the store needs none.
	Serve func(ctx context.Context) (*Servers, error)

	// Processes reports whether several processes can share the state.
	Processes bool

	// Held is the number of locks in the case held.
	Held int

	Subjects []Subject
}

// Stores are in the order of the measurements.
var Stores = []Store{Memory, sqlite, redisStore, memcachedStore, mysqlStore, postgresStore, etcdStore, zookeeperStore}

// Place is where the state of one round is.
type Place struct {
	Dir    string   // for files
	Addrs  []string // of the servers
	memory *memory  // what the clients of this process share
}

// NewPlace returns the place of a round that begins.
func NewPlace(dir string, servers *Servers) Place {
	at := Place{Dir: dir, memory: newMemory()}
	if servers != nil {
		at.Addrs = servers.Addrs()
	}
	return at
}

// url fills an address, the addresses of the members of Redlock, or the folder into a text.
func (at Place) url(pattern string) string {
	values := []string{"FOLDER", at.Dir}
	if len(at.Addrs) > 0 {
		values = append(values, "SERVER", at.Addrs[0], "MEMBERS", strings.Join(at.Addrs[1:], ","))
	}
	return strings.NewReplacer(values...).Replace(pattern)
}

// Subject is a library or protocol that locks.
type Subject struct {
	Name string

	// Cases restricts the subject to these cases; nil means all.
	Cases []string

	// Shared and Limits report whether the subject has shared locks and semaphores.
	Shared, Limits bool

	// Exclusive makes every acquisition exclusive, to compare the modes with.
	Exclusive bool

	// Open returns a client like that of a separate process. The clients of a
	// place share one state.
	Open func(ctx context.Context, at Place) (*Client, error)

	// Command reports that every acquisition runs a command, for the case exec.
	Command bool

	// Program, in place of Open, returns a program in another language. It runs as
	// one of the plan's processes and does what participate does.
	Program func(ctx context.Context, at Place, p Plan) (*exec.Cmd, error)

	// Missing explains why the subject cannot run here; nil if it always can.
	Missing func() error
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
type Client struct {
	// Worker returns what one goroutine needs.
	Worker func(ctx context.Context, want Want) (Worker, error)
	// Commands returns the number of commands to the store so far; nil if the
	// client does not count them.
	Commands func() uint64
	Close    func() error
}

// Want is what a worker acquires.
type Want struct {
	Name string
	driver.Mode
	ReadWrite bool // the name is also acquired shared
}

// Worker acquires and releases one lock repeatedly. It keeps its state between
// the calls, so that measuring allocates nothing.
type Worker struct {
	Lock   func(ctx context.Context) error // blocks until the lock is acquired
	Unlock func(ctx context.Context) error
}

// workers are those of a subject without modes.
func workers(of func(name string) Worker) func(context.Context, Want) (Worker, error) {
	return func(_ context.Context, want Want) (Worker, error) { return of(want.Name), nil }
}

// polling is the Lock of a subject without notifications: it tries again after a
// millisecond.
func polling(try func(context.Context) (granted bool, err error)) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			granted, err := try(ctx)
			if err != nil || granted {
				return err
			}
			if err := millisecond(ctx); err != nil {
				return err
			}
		}
	}
}

func millisecond(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// released is the result of an Unlock.
func released(found bool, err error) error {
	if err == nil && !found {
		return driver.ErrNotHeld
	}
	return err
}

// Plan is what the goroutines of each process do in a case with processes.
type Plan struct {
	Name        string // of the lock
	Goroutines  int
	Hold, Pause time.Duration
	Shared      int // percentage of shared acquisitions
	Limit       int // of the semaphore; zero for a lock
}

// Want is what the goroutines acquire, or what they acquire in their shared turns.
func (p Plan) Want(shared bool) Want {
	return Want{p.Name, driver.Mode{Shared: shared, Limit: p.Limit}, p.Shared > 0}
}
