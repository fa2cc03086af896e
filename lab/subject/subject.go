// Package subject holds the ways to lock that the experiments compare: dlock, other
// libraries, and the wrong ways that the articles about distributed locks warn of.
package subject

import (
	"context"
	"slices"
	"time"
)

// Role is why a subject is in an experiment.
type Role string

// The roles.
const (
	Ours  Role = "dlock"   // must hold
	Wrong Role = "mistake" // must be caught
	Peer  Role = "peer"    // is reported
)

// Subject is one way to lock.
type Subject struct {
	Name  string // STORE/NAME, or NAME if the store does not matter
	Role  Role
	About string                                              // one sentence: how it locks
	Open  func(ctx context.Context, c Config) (Locker, error) // nil for a program in another language
}

// Config is what a process of an experiment gives to its way to lock.
type Config struct {
	URL   string        `json:"url"`
	Name  string        `json:"name"`
	TTL   time.Duration `json:"ttl"`
	Fixed bool          `json:"fixed,omitempty"` // the lock is not renewed; only guards know that
	Clock time.Duration `json:"clock"`           // how far the wall clock of this process is wrong
}

// now is the wall clock of the process. Only the subjects that send their own time
// to the server use it.
func (c Config) now() time.Time { return time.Now().Add(c.Clock) }

// Locker is one process's access to the lock.
type Locker interface {
	// Lock waits for the lock.
	Lock(ctx context.Context) (Held, error)
}

// BatchLocker is a Locker that can lock several names.
type BatchLocker interface {
	LockAll(ctx context.Context, names []string) (Held, error)
}

// Held is a lock that a process has, or believes to have.
type Held interface {
	// Believes reports whether the process may still go on, as far as its library
	// lets it know without asking the server.
	Believes() bool
	// Token is what the account's fence compares; zero if the way to lock has none.
	Token() uint64
	Unlock(ctx context.Context) error
}

// lockFunc is a Locker that is a function.
type lockFunc func(ctx context.Context) (Held, error)

func (f lockFunc) Lock(ctx context.Context) (Held, error) { return f(ctx) }

// held is a lock whose library has a form of its own.
type held struct {
	unlock   func(ctx context.Context) error
	believes func() bool // nil if the process does not learn that it has lost the lock
	token    uint64
}

func (h held) Believes() bool                   { return h.believes == nil || h.believes() }
func (h held) Token() uint64                    { return h.token }
func (h held) Unlock(ctx context.Context) error { return h.unlock(ctx) }

// alive is the belief of a process whose library ends a context with the lock.
func alive(ctx context.Context) func() bool { return func() bool { return ctx.Err() == nil } }

// All are all subjects.
var All = slices.Concat(guards, dlocks, redisMistakes, redisPeers, redlocks, etcdSubjects, zookeeperSubjects,
	memcachedSubjects, sqlSubjects, javaSubjects)

// Named returns the subject with that name, which exists.
func Named(name string) Subject {
	return All[slices.IndexFunc(All, func(s Subject) bool { return s.Name == name })]
}

// again is the pause between two attempts of the subjects that poll.
const again = 20 * time.Millisecond

// pollLock tries until it gets the lock or the context ends.
func pollLock(ctx context.Context, try func() (bool, error)) error {
	for {
		ok, err := try()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
