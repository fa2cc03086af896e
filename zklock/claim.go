package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// claim is what one owner has or wants under one name: a node, or the doubt whether
// there is one.
type claim struct {
	claimKey
	parent string // the path of the container

	// op is held for a whole operation, with all its calls to the server.
	op    sync.Mutex
	gone  bool // it is not in the table any more
	doubt bool // a node may have been created, and the answer got lost
	// blocked is the node of the one who had the lock, and blocker what it said.
	blocked string
	blocker driver.HeldError

	// The rest is guarded by Store.mu.
	id       string // by which its node is found again; changed with op and Store.mu, one for each node
	node     string // its name in the container; empty if there is none
	session  int64  // that the node belongs to
	token    uint64
	version  int32         // of the container when the node was created
	seen     clock.Instant // after which the node was there
	granted  bool
	leaving  bool          // the node is being removed
	guarded  uint64        // the connection in which its removal by others is told; zero if in none
	released bool          // a Release found no server: the attempt that is under way is not granted
	queued   bool          // the place is kept without a watch
	asked    time.Duration // the TTL that was asked for
	deadline time.Time     // when the lock or the place expires
	timer    *time.Timer
	lost     func()
	waiters  map[*waiter]struct{}
	watching map[string]struct{} // the paths that waiters watch
	at       position            // as far as it is known
	unasked  bool                // there was no attempt since somebody began to watch
}

type claimKey struct {
	name  string
	owner driver.Owner
}

func (c *claim) path() string { return c.parent + "/" + c.node }

// enter begins an operation on a claim, which is created if create is true and
// otherwise may be nil. It ends with leave.
func (s *Store) enter(key claimKey, create bool) *claim {
	for {
		s.mu.Lock()
		c := s.claims[key]
		if c == nil && create {
			c = &claim{claimKey: key, parent: s.parentOf(key.name)}
			s.claims[key] = c
		}
		s.mu.Unlock()
		if c == nil {
			return nil
		}
		c.op.Lock()
		if !c.gone {
			return c
		}
		c.op.Unlock()
	}
}

// leave ends an operation. A claim that is about nothing is forgotten.
func (s *Store) leave(c *claim) {
	defer c.op.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.gone && c.node == "" && !c.doubt && len(c.waiters) == 0 {
		c.gone = true
		c.stopTimerLocked()
		s.unwatchAllLocked(c)
		delete(s.claims, c.claimKey)
	}
}

// keeps says whether the claim keeps its node when it is not its turn. The node of the
// order Unfair has no place in a queue.
func (s *Store) keeps(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order == Fair && (c.queued || len(c.waiters) > 0)
}

// lastsLocked sets when the claim expires.
func (s *Store) lastsLocked(c *claim, ttl time.Duration) {
	c.deadline = time.Now().Add(ttl)
	switch {
	case s.closed:
	case c.timer == nil:
		c.timer = time.AfterFunc(ttl, func() { s.timeUp(c) })
	case ttl <= 0: // otherwise the timer sees for itself that it is early
		c.timer.Reset(0)
	}
}

func (c *claim) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// overLocked says whether the claim has expired. A place is kept while somebody
// watches: he says when he does not any more.
func (c *claim) overLocked() bool {
	return !time.Now().Before(c.deadline) && (c.granted || len(c.waiters) == 0)
}

// timeUp is called when a claim may have expired.
func (s *Store) timeUp(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.timer == nil {
		return // it was stopped
	}
	left := time.Until(c.deadline)
	switch {
	case left > 0:
		c.timer.Reset(left)
	case c.overLocked():
		c.timer = nil
		go s.later(func(ctx context.Context) { s.expire(ctx, c) })
	default:
		c.timer = nil // until nobody watches any more
	}
}
