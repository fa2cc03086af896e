// Package memlock keeps locks in the memory of one process. It is the reference for all
// other stores, and it is made for unit tests of programs that use dlock: clients that share
// a Store exclude each other as clients on different machines would.
package memlock

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/share"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Store keeps locks in memory. Create one with [New].
//
// It implements every extension of package driver except Finder and Diagnoser.
type Store struct {
	start time.Time // all times are nanoseconds since then, on the monotonic clock

	mu      sync.Mutex
	locks   map[string]*lock // held, expired or free: see removeUnused
	last    int64            // the last token, one counter for all names: removing a name resets nothing
	cleanAt int              // the number of records at which removeUnused runs

	queues  map[string][]place                  // waiters with a place, in order of arrival
	waiters subscribers.Registry[*subscription] // callers that want to be woken
}

// lock is the record of a name. Shares that have expired are removed when it is used.
type lock = share.Lock[driver.Owner]

// use returns the record of name without the shares that have expired, or nil. s.mu is held.
func (s *Store) use(name string, now int64) *lock {
	l := s.locks[name]
	if l != nil {
		l.Expire(now)
	}
	return l
}

// tokenStep is how many tokens a grant has. They cost nothing.
const tokenStep = 1024

// minRecords is the number of records below which a store removes none.
const minRecords = 1024

// New returns an empty store.
func New() *Store {
	return &Store{start: time.Now(), cleanAt: minRecords,
		locks: make(map[string]*lock), queues: make(map[string][]place)}
}

// Format prints only the type, because the store contains the owners of locks.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "memlock.Store") }

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{Store: "memory", Fencing: driver.FencingStrong, TokenStep: tokenStep, Fair: true, Shared: true, Limits: true,
		Local: true, OneMachine: true, MinTTL: time.Millisecond}
}

// Close implements driver.Store. It does nothing: a store in memory lives as long as the
// program refers to it.
func (s *Store) Close() error { return nil }

// removeUnused removes the records of locks that are free or expired, and expired places. It runs
// when the number of records has doubled since the last time, so that the cost for each acquisition
// is constant.
func (s *Store) removeUnused(now int64) {
	for name := range s.queues {
		s.queue(name, now)
	}
	for name := range s.locks {
		if len(s.use(name, now).Shares) == 0 {
			delete(s.locks, name)
		}
	}
	s.cleanAt = max(minRecords, 2*len(s.locks))
}

func (s *Store) now() int64 { return int64(time.Since(s.start)) }
