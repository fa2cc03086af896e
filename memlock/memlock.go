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
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Store keeps locks in memory. Create one with [New].
//
// It implements every extension of package driver except Finder and Diagnoser.
type Store struct {
	start time.Time // all times are durations since then, on the monotonic clock
	id    string    // identifies the store to a quorum

	mu      sync.Mutex
	locks   map[string]*lock // held, expired or free: see removeUnused
	last    uint64           // the last token, one counter for all names: removing a name resets nothing
	cleanAt int              // the number of records at which removeUnused runs

	queues  map[string][]place                  // fair waiters in order of arrival
	waiters subscribers.Registry[*subscription] // callers that want to be woken
}

type lock struct {
	owner   driver.Owner
	token   uint64 // zero when free
	since   time.Duration
	expires time.Duration
	holder  driver.Holder
}

func (l *lock) held(now time.Duration) bool { return l != nil && l.token != 0 && now < l.expires }

// heldBy returns the record of a lock that owner holds, with that token unless it is zero.
// Otherwise it returns nil. s.mu is held.
func (s *Store) heldBy(name string, owner driver.Owner, token uint64) *lock {
	l := s.locks[name]
	if !l.held(s.now()) || l.owner != owner || token != 0 && l.token != token {
		return nil
	}
	return l
}

// place is that of a fair waiter in the queue of a name.
type place struct {
	owner   driver.Owner
	expires time.Duration
}

// minRecords is the number of records below which a store removes none.
const minRecords = 1024

// New returns an empty store.
func New() *Store {
	return &Store{start: time.Now(), id: driver.NewOwner().Hex(), cleanAt: minRecords,
		locks: make(map[string]*lock), queues: make(map[string][]place)}
}

// Format prints only the type, because the store contains the owners of locks.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "memlock.Store") }

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{Store: "memory", Fencing: driver.FencingStrong, Fair: true, Local: true, OneMachine: true, MinTTL: time.Millisecond}
}

// Close implements driver.Store. It does nothing: a store in memory lives as long as the
// program refers to it.
func (s *Store) Close() error { return nil }

// removeUnused removes the records of locks that are free or expired. It runs when the
// number of records has doubled since the last time: the cost for each acquisition is
// constant, and at most half of the records are unused.
func (s *Store) removeUnused(now time.Duration) {
	for name, l := range s.locks {
		if !l.held(now) {
			delete(s.locks, name)
		}
	}
	s.cleanAt = max(minRecords, 2*len(s.locks))
}

func (s *Store) now() time.Duration { return time.Since(s.start) }
