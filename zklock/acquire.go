package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/span"
	"github.com/go-zookeeper/zk"
)

// errVanished: the node does not exist although its session lives. An operator or Break
// removed it.
var errVanished = errors.New("the node was removed")

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return call(ctx, s, "acquiring a lock", func(ctx context.Context) (driver.Grant, error) { return s.acquire(ctx, &req) })
}

func (s *Store) acquire(ctx context.Context, req *driver.Request) (driver.Grant, error) {
	a := s.enter(req.Name, req.Owner, true)
	defer s.leave(a)
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	a.queued, a.released, a.lost = req.Queue, false, req.Lost
	if !a.granted {
		s.setDeadlineLocked(a, req.TTL)
	}
	s.mu.Unlock()
	at, err := s.ensureQueued(ctx, a, req)
	if err != nil {
		return driver.Grant{}, err
	}
	s.locked(func() { a.fresh = false })
	if at.first {
		return s.grant(a, req, at)
	}
	return driver.Grant{}, s.refuse(ctx, a, at)
}

// grant makes the acquisition the holder, if its session lives.
func (s *Store) grant(a *acquisition, req *driver.Request, at position) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.node == "" || a.session != s.session.Load():
		return driver.Grant{}, fmt.Errorf("%w: the session ended", driver.ErrUnreachable)
	case a.released:
		return driver.Grant{}, fmt.Errorf("%w: the lock was released before it was granted", driver.ErrUnreachable)
	}
	if !a.granted || a.ttl < req.TTL { // asking again never shortens
		a.ttl = req.TTL
	}
	a.granted, a.queued, a.leaving = true, false, false
	a.lost = req.Lost // also if an earlier node of the owner was lost meanwhile
	a.at = position{}
	s.setDeadlineLocked(a, a.ttl)
	return driver.Grant{Name: a.name, Owner: a.owner, Token: a.token, Span: span.Size, TTL: s.promise(req.TTL, at.age)}, nil
}

// refuse returns a HeldError. It removes the node of an owner that does not wait.
func (s *Store) refuse(ctx context.Context, a *acquisition, at position) error {
	removed := make(chan error, 1)
	if s.keepsNode(a) {
		removed <- nil
	} else {
		go func() {
			_, _, err := s.releaseNode(ctx, a)
			removed <- err
		}()
	}
	held := s.holderOf(a, at)
	if err := <-removed; err != nil {
		s.locked(func() { s.expireNowLocked(a) })
		return err
	}
	return &held
}

// holderOf describes the holder, as far as the server answers. If the acquisition waits for
// the holder's node, the same request watches it.
func (s *Store) holderOf(a *acquisition, at position) driver.HeldError {
	if a.blockedBy == at.head && at.head != unfairNode { // a name that is used once
		return a.blocker
	}
	var data []byte
	var stat *zk.Stat
	var err error
	node := a.container + "/" + at.head
	if s.keepsNode(a) && slices.Contains(at.ahead, at.head) {
		data, stat, err = s.watchNode(a, node)
	}
	if stat == nil && err == nil {
		data, stat, err = s.conn.Get(node)
	}
	held := driver.HeldError{Name: a.name}
	if err == nil {
		about := decode(data)
		held.Token, held.Holder, held.Remaining = tokenOf(stat.Czxid), about.Holder, about.ttl()
		a.blockedBy, a.blocker = at.head, held
	}
	return held
}

// ensureQueued makes sure that the acquisition has a node, and returns its position. If the
// acquisition has waiters, it watches the nodes ahead. It tries again when the connection breaks.
func (s *Store) ensureQueued(ctx context.Context, a *acquisition, req *driver.Request) (at position, err error) {
	err = s.persist(ctx, func() (err error) {
		for {
			at, err = s.findOrCreate(a, req)
			if err == nil && !at.first {
				err = s.watchAhead(a, at)
			}
			if !isOutdated(err) || ctx.Err() != nil {
				return err
			}
		}
	})
	return at, err
}

// isOutdated reports whether a request was about something that has changed meanwhile.
func isOutdated(err error) bool { return isAny(err, errVanished, zk.ErrNoNode, zk.ErrBadVersion) }

// findOrCreate finds or creates the acquisition's node.
func (s *Store) findOrCreate(a *acquisition, req *driver.Request) (position, error) {
	if a.unknown {
		if err := s.resolveCreation(a); err != nil {
			return position{}, err
		}
	}
	hasNode := false
	s.locked(func() { hasNode = a.node != "" })
	if !hasNode {
		return s.create(a, req)
	}
	if at, ok := s.knownPosition(a); ok {
		return at, nil
	}
	return s.queryPosition(a)
}

// queryPosition finds the acquisition's node in the queue. A server that has lost the leader
// may answer with an old queue. If the node is the first in it, the leader's confirmation
// proves that it still is. If not, the server is asked again when it has heard the leader.
func (s *Store) queryPosition(a *acquisition) (position, error) {
	confirmed := make(chan error, 1)
	go func() { confirmed <- s.confirmSession() }()
	at, err := s.readPosition(a)
	if err := <-confirmed; err != nil {
		return position{}, err
	}
	if err == nil && at.first {
		return at, nil
	}
	return s.readPosition(a)
}

// readPosition finds the acquisition's node in the queue that the connected server knows.
func (s *Store) readPosition(a *acquisition) (position, error) {
	asked := s.clock.NoLaterThanNow()
	queue, err := s.queue(a.container)
	if err != nil {
		return position{}, err
	}
	if s.opts.Order == Unfair {
		// Other contenders use the same name. A node that is ours after the queue was
		// listed was ours when it was listed.
		exists, stat, err := s.conn.Exists(a.container + "/" + unfairNode)
		if err != nil {
			return position{}, err
		}
		if !exists || tokenOf(stat.Czxid) != a.token {
			queue = nil
		}
	}
	return s.locate(a, queue, asked)
}

// locate finds the acquisition's node in the queue as it was after asked. A node of the
// order Unfair sorts before all others, but has the lock only if it found no others.
func (s *Store) locate(a *acquisition, queue []string, asked clock.Instant) (position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(queue, a.node)
	if i < 0 {
		a.lost = nil // the owner learns it from the answer
		s.nodeVanishedLocked(a)
		return position{}, errVanished
	}
	a.seen = asked
	switch {
	case s.opts.Order == Unfair && !a.granted && len(queue) > 1:
		return position{ahead: queue[1:2], head: queue[1]}, nil
	case i == 0 || a.granted:
		return position{first: true}, nil
	}
	a.at = positionOf(queue, i)
	return a.at, nil
}

// queue returns the contenders' nodes in order. Without a container the queue is empty.
func (s *Store) queue(container string) ([]string, error) {
	children, _, err := s.conn.Children(container)
	return queueOf(children), unless(err, zk.ErrNoNode)
}
