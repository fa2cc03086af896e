package sqlsession

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// phase is where a heldLock is on its way.
type phase int

const (
	taking  phase = iota // the server is being asked
	held                 // it is held
	leaving              // it is being given up
)

// heldLock is a lock that this store has, or is about to have or to lose. The
// server's locks belong to a connection, which owners share, so that who of this
// store has a lock is decided here, and only the store as a whole asks the server.
type heldLock struct {
	name  string
	owner driver.Owner
	key   lockKey

	// Under the store's mutex:
	phase    phase
	token    uint64
	conn     *conn // that it is on or being asked for on; nil if there is none yet
	ttl      time.Duration
	deadline time.Time // when the store gives it up by itself
	holder   driver.Holder
	lost     func()
	changed  chan struct{} // closed at the next change; nil if nobody waits for it
	expired  bool          // it is leaving because its TTL has passed
	ended    bool          // the server does not hold it any more
	outcome  error         // of its Release, once it has ended
}

// grant is what the holder of the heldLock gets.
func (h *heldLock) grant() driver.Grant {
	return driver.Grant{Name: h.name, Owner: h.owner, Token: h.token, TTL: h.ttl}
}

// heldError describes the heldLock to another owner.
func (h *heldLock) heldError(now time.Time) *driver.HeldError {
	return &driver.HeldError{Name: h.name, Token: h.token, Holder: h.holder, Remaining: max(0, h.deadline.Sub(now))}
}

// wakeLocked tells those who wait that something has changed.
func (h *heldLock) wakeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// extendLocked starts the TTL of a lock that is held again. It never shortens it: the
// answer to an earlier call may come after that to a later one.
func (s *Store) extendLocked(h *heldLock, ttl time.Duration) {
	h.ttl = ttl
	if deadline := time.Now().Add(ttl); deadline.After(h.deadline) {
		h.deadline = deadline
	}
	s.checks.NoLaterThan(h.deadline)
}

// bind notes on which conn the server is asked, so that the attempt is over when
// that is lost, whether its answer comes or not. It is false if it was lost already.
func (s *Store) bind(h *heldLock, c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead.Load() {
		return false
	}
	h.conn = c
	return true
}

// hold notes that the server has granted the lock on that conn. It is false if
// the conn was lost meanwhile.
func (s *Store) hold(h *heldLock, c *conn, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead.Load() {
		return false
	}
	h.phase, h.conn, h.token = held, c, token
	s.extendLocked(h, h.ttl)
	h.wakeLocked()
	return true
}

// settle removes a lock that the server does not hold any more, and wakes its waiters.
// outcome is what a Release that waits for it returns.
func (s *Store) settle(h *heldLock, outcome error) {
	s.mu.Lock()
	if outcome == nil && (h.expired || h.token == 0) { // its owner did not hold it
		outcome = driver.ErrNotHeld
	}
	h.ended, h.outcome = true, outcome
	s.mu.Unlock()
	s.forget(h)
	s.watchers.wake(h.name)
}

// forget takes a heldLock that never was, or is over, out of the books.
func (s *Store) forget(h *heldLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.phase = leaving
	if s.locks[h.name] == h {
		delete(s.locks, h.name)
	}
	h.wakeLocked()
}

// wait returns when the heldLock has changed.
func (s *Store) wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// changedLocked is closed when the heldLock changes.
func (h *heldLock) changedLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}
