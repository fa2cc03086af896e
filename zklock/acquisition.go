package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/span"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// acquisition is what one owner holds or waits for under one name: a node, or a creation
// of unknown outcome.
type acquisition struct {
	acquisitionKey
	container string // its path

	// op is held for a whole operation with all its requests, and guards these fields.
	op        sync.Mutex
	ended     bool             // it is not in Store.acquisitions any more
	unknown   bool             // a node may have been created: the answer was lost
	blockedBy string           // the holder's node when the acquisition was last refused
	blocker   driver.HeldError // what that node said

	// Store.mu guards the rest. id, session, token and version change only with op held, too.
	id       string        // identifies the node; new for each node
	node     string        // name in the container; empty if there is none
	session  int64         // the session of the node
	token    uint64        // the first of the span
	version  int32         // of the container when the node was created
	seen     clock.Instant // the node existed after that instant
	granted  bool
	leaving  bool          // the store itself removes the node
	guarded  uint64        // the connection that watches the holder's node; zero if none does
	released bool          // a Release found no server: the attempt under way is not granted
	queued   bool          // the place is kept without a watch
	ttl      time.Duration // of the grant
	deadline time.Time     // when the lock or the place expires
	expiring bool          // expire is under way
	lost     func()
	waiters  map[*subscribers.Subscriber]struct{}
	watching map[string]struct{} // the paths that the waiters watch
	at       position            // as far as it is known
	fresh    bool                // there was no attempt since the last Watch began
}

type acquisitionKey struct {
	name  string
	owner driver.Owner
}

func (a *acquisition) path() string { return a.container + "/" + a.node }

// enter begins an operation on an acquisition, which leave ends. An acquisition that
// does not exist is created or, without create, enter returns nil.
func (s *Store) enter(name string, owner driver.Owner, create bool) *acquisition {
	key := acquisitionKey{name, owner}
	for {
		s.mu.Lock()
		a := s.acquisitions[key]
		if a == nil && create {
			a = &acquisition{acquisitionKey: key, container: s.containerPath(name)}
			s.acquisitions[key] = a
		}
		s.mu.Unlock()
		if a == nil {
			return nil
		}
		a.op.Lock()
		if !a.ended {
			return a
		}
		a.op.Unlock()
	}
}

// leave ends an operation. It removes an acquisition without a node and without waiters.
func (s *Store) leave(a *acquisition) {
	defer a.op.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.ended && a.node == "" && !a.unknown && len(a.waiters) == 0 {
		a.ended = true
		for path := range a.watching {
			s.unwatchNodeLocked(a, path)
		}
		delete(s.acquisitions, a.acquisitionKey)
	}
}

// keepsNode reports whether a refused acquisition keeps its node. The node of the order
// Unfair is no place in a queue.
func (s *Store) keepsNode(a *acquisition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Order == Fair && a.keepsPlaceLocked()
}

func (a *acquisition) keepsPlaceLocked() bool { return a.queued || len(a.waiters) > 0 }

// setDeadlineLocked makes the acquisition expire after ttl.
func (s *Store) setDeadlineLocked(a *acquisition, ttl time.Duration) {
	a.deadline = time.Now().Add(ttl)
	s.alarm.NoLaterThan(a.deadline)
}

// expiredLocked reports whether the acquisition has expired. A place does not expire while
// it has a waiter: stopping the watch ends it.
func (a *acquisition) expiredLocked() bool {
	return !time.Now().Before(a.deadline) && (a.granted || len(a.waiters) == 0)
}

// expireDue is the janitor: it releases what has expired, and returns the next deadline.
func (s *Store) expireDue(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := alarm.Never
	for _, a := range s.acquisitions {
		switch {
		case now.Before(a.deadline):
			if a.deadline.Before(next) {
				next = a.deadline
			}
		case a.expiredLocked() && !a.expiring:
			a.expiring = true
			s.backgroundLocked(func(ctx context.Context) { s.expire(ctx, a) })
		}
	}
	return next
}

// nodeVanishedLocked notes that an acquisition's node is gone, and reports the loss of its lock.
func (s *Store) nodeVanishedLocked(a *acquisition) {
	if lost := a.lost; lost != nil && a.granted && !a.leaving && a.node != "" {
		a.lost = nil
		s.backgroundLocked(func(context.Context) { lost() })
	}
	if a.node == unfairNode && a.session == s.session.Load() {
		// Its anchor may still exist.
		container, anchor := a.container, anchorName(a.id)
		s.backgroundLocked(func(ctx context.Context) {
			_ = s.persist(ctx, func() error { return s.deleteAnchor(container, anchor) }) // it ends with the session
		})
	}
	a.node, a.granted, a.guarded = "", false, 0
	a.at = position{}
}

// tokenOf returns the first token of a lock. The zxid that created its node, a number that
// rises with every change in ZooKeeper, is the upper part.
func tokenOf(zxid int64) uint64 { return span.First(uint64(zxid)) }
