package sqlsession

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

type phase int

const (
	acquiring phase = iota // the server is being asked
	held
	releasing // the server is being asked, or its session has to end
)

// heldLock is a lock that this store holds, acquires or releases, as its phase says. The server's locks belong
// to a connection, which the owners share. So the store decides which of its owners has a
// lock, and asks the server for the store as a whole.
type heldLock struct {
	name  string
	owner driver.Owner
	key   lockKey

	// Under the store's mutex:
	phase    phase
	shared   bool   // changes only while a caller uses its conn
	token    uint64 // zero until it is held
	conn     *conn  // that the server was asked on; nil before
	ttl      time.Duration
	deadline time.Time // when the store releases it by itself
	holder   driver.Holder
	lost     func()
	changed  chan struct{} // closed at the next change; nil if no caller waits for it
	expired  bool          // it is released because its TTL has passed
	ended    bool          // the server does not hold it any more
	outcome  error         // of its release, once it has ended
}

// grant has a single token: a caller that took the lock over from another one of its process, without asking
// the server, might get it over a connection that is dead, after another process got it.
func (h *heldLock) grant() driver.Grant {
	return driver.Grant{Name: h.name, Owner: h.owner, Token: h.token, TTL: h.ttl}
}

func (h *heldLock) changedLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

func (h *heldLock) wakeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

func wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// extendLocked starts the TTL of a lock again. It never shortens it: the answer to an
// earlier call may arrive after the answer to a later one.
func (s *Store) extendLocked(h *heldLock, ttl time.Duration) {
	h.ttl = ttl
	if deadline := time.Now().Add(ttl); deadline.After(h.deadline) {
		h.deadline = deadline
	}
	s.alarm.NoLaterThan(h.deadline)
}

// hold records that the server has granted the lock on its conn. It reports false if the
// conn was lost, or the store closed, meanwhile: then the lock ends with the session.
func (s *Store) hold(h *heldLock, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.conn.dead.Load() || s.closed {
		return false
	}
	h.phase, h.token = held, token
	s.extendLocked(h, h.ttl)
	h.wakeLocked()
	return true
}

// endLock removes a lock that the server does not hold any more, and notifies its waiters.
// outcome is what a Release that waits for it returns.
func (s *Store) endLock(h *heldLock, outcome error) {
	s.mu.Lock()
	if outcome == nil && (h.expired || h.token == 0) { // its owner did not hold it
		outcome = driver.ErrNotHeld
	}
	h.ended, h.outcome = true, outcome
	s.removeLocked(h)
	s.mu.Unlock()
	s.wake(h.name)
}

// remove removes a lock that was not acquired.
func (s *Store) remove(h *heldLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(h)
}

func (s *Store) removeLocked(h *heldLock) {
	h.phase = releasing
	h.wakeLocked()
	s.locks[h.name] = slices.DeleteFunc(s.locks[h.name], func(other *heldLock) bool { return other == h })
	if len(s.locks[h.name]) == 0 {
		delete(s.locks, h.name)
	}
}

// ofLocked returns the lock of an owner, or nil.
func (s *Store) ofLocked(name string, owner driver.Owner) *heldLock {
	for _, h := range s.locks[name] {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

func (s *Store) allLocked() []*heldLock {
	return slices.Concat(slices.Collect(maps.Values(s.locks))...)
}
