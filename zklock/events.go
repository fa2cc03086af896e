package zklock

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// handle is told by the client what happens to the session, and to watched nodes.
// Between an event and what the server answered before or after it the client keeps
// the order. It must not block.
func (s *Store) handle(event zk.Event) {
	if event.Type != zk.EventSession {
		if event.Path != "" {
			s.fire(event)
		}
		return
	}
	switch event.State {
	case zk.StateHasSession:
		s.began(s.conn.SessionID())
	case zk.StateExpired:
		s.sessionEnded()
		s.setUp(false)
	case zk.StateDisconnected, zk.StateConnecting:
		s.setUp(false)
	default: // on the way to a session
	}
}

// began takes note of a session, new or found again, and wakes everybody: something
// may have been missed. For the same reason holders look after their nodes again.
func (s *Store) began(id int64) {
	s.mu.Lock()
	old := s.live
	s.mu.Unlock()
	if old != 0 && old != id {
		s.sessionEnded()
	}
	s.mu.Lock()
	s.live = id
	s.connection++
	waiters := s.waitersLocked()
	watches := len(s.watches) > 0
	s.mu.Unlock()
	if watches {
		s.expectWatches()
	}
	s.setUp(true)
	wakeAll(waiters)
}

// sessionEnded takes all nodes from all claims.
func (s *Store) sessionEnded() {
	s.mu.Lock()
	s.live = 0
	clear(s.watches)
	var lost []func()
	for _, c := range s.claims {
		if f := s.vanishedLocked(c); f != nil {
			lost = append(lost, f)
		}
		clear(c.watching)
	}
	waiters := s.waitersLocked()
	s.mu.Unlock()
	for _, f := range lost {
		f()
	}
	wakeAll(waiters)
}

func (s *Store) waitersLocked() (list []*waiter) {
	for _, c := range s.claims {
		list = append(list, c.listLocked()...)
	}
	return list
}

func (c *claim) listLocked() (list []*waiter) {
	for w := range c.waiters {
		list = append(list, w)
	}
	return list
}

func wakeAll(waiters []*waiter) {
	for _, w := range waiters {
		w.call()
	}
}

// vanishedLocked takes note that a claim's node is gone. It returns what to call if a
// lock was lost with it, nil otherwise.
func (s *Store) vanishedLocked(c *claim) (lost func()) {
	if c.granted && !c.leaving && c.node != "" {
		lost, c.lost = c.lost, nil
	}
	if c.node == single && s.live != 0 && c.session == s.live {
		// Its anchor may still be there.
		parent, anchor := c.parent, anchorOf(c.id)
		go s.later(func(ctx context.Context) {
			_ = s.persist(ctx, func() error { return s.removeAnchor(parent, anchor) }) // it ends with the session
		})
	}
	c.node, c.granted, c.guarded = "", false, 0
	c.at = position{}
	return lost
}

// fire takes note that something happened to a node that was watched.
func (s *Store) fire(event zk.Event) {
	s.mu.Lock()
	n := s.watches[event.Path]
	if n == nil {
		s.mu.Unlock()
		return
	}
	delete(s.watches, event.Path)
	var lost func()
	if c := n.owner; c != nil && c.node != "" && c.path() == event.Path {
		c.guarded = 0
		if event.Type == zk.EventNodeDeleted && !c.leaving {
			lost = s.vanishedLocked(c)
		}
	}
	var waiters []*waiter
	for c := range n.claims {
		if c.removedLocked(event) {
			waiters = append(waiters, c.listLocked()...)
		}
	}
	s.mu.Unlock()
	if lost != nil {
		lost()
	}
	wakeAll(waiters)
}

func (s *Store) liveSession() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}
