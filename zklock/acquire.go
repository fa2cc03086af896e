package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// errCreateAgain makes an attempt create its nodes again: they are gone, or of another session.
var errCreateAgain = errors.New("the node was removed")

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return detached(ctx, s, "acquiring a lock", func(ctx context.Context) (driver.Grant, error) { return s.acquire(ctx, &req) })
}

// acquire makes an attempt. ensureQueued retries ensureNode, which creates the nodes (create) or
// finds the position: from the watches (knownPosition), else from the server (queryPosition).
// positionIn and positionOf compute it from a list of nodes, without requests.
func (s *Store) acquire(ctx context.Context, req *driver.Request) (driver.Grant, error) {
	h := s.lockHold(holdID{req.Name, req.Owner}, true)
	defer s.unlockHold(h)
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	if !s.offersModes() && req.Mode != (driver.Mode{}) {
		return driver.Grant{}, fmt.Errorf("%w: mode %v with the order Unfair or ExclusiveOnly", driver.ErrUnsupported, req.Mode)
	}
	s.mu.Lock()
	h.keepPlace, h.released, h.lost = req.Queue, false, req.Lost
	if !h.held {
		s.setExpiryLocked(h, req.TTL)
	}
	s.mu.Unlock()
	at, err := s.ensureQueued(ctx, h, req)
	if errors.Is(err, driver.ErrMode) {
		return driver.Grant{}, cmp.Or(s.withdraw(ctx, h), err)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	s.withLock(func() { h.firstAttempt = false })
	if at.first {
		return s.recordGrant(h, req, at)
	}
	return driver.Grant{}, s.refuse(ctx, h, at)
}

// recordGrant makes the hold the holder, if its session lives.
func (s *Store) recordGrant(h *hold, req *driver.Request, at position) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed: // Close would not report the loss of the grant
		return driver.Grant{}, driver.ErrClosed
	case h.node == "" || h.session != s.sessionID.Load():
		return driver.Grant{}, fmt.Errorf("%w: the session ended", driver.ErrUnreachable)
	case h.released:
		return driver.Grant{}, fmt.Errorf("%w: the lock was released before it was granted", driver.ErrUnreachable)
	}
	if !h.held || h.ttl < req.TTL { // asking again never shortens
		h.ttl = req.TTL
	}
	h.held, h.keepPlace, h.leaving = true, false, false
	h.lost = req.Lost // also if an earlier node of the owner was lost meanwhile
	h.position = position{}
	h.promised = min(s.promise(req.TTL, at.age), s.remaining(s.confirmed.sent))
	s.setExpiryLocked(h, h.ttl)
	return driver.Grant{Name: h.name, Owner: h.owner, Token: h.token, TTL: h.promised}, nil
}

// refuse returns a HeldError. It removes the node of an owner that does not wait.
func (s *Store) refuse(ctx context.Context, h *hold, at position) error {
	var removal sync.WaitGroup
	var err error
	if !s.keepsNode(h) {
		removal.Go(func() { err = s.withdraw(ctx, h) })
	}
	held := s.holderOf(h, at)
	removal.Wait()
	return cmp.Or[error](err, &held)
}

// withdraw removes the nodes of a refused attempt.
func (s *Store) withdraw(ctx context.Context, h *hold) error {
	_, _, err := s.releaseNodes(ctx, h)
	if err != nil {
		s.withLock(func() { s.expireNowLocked(h) })
	}
	return err
}

// holderOf describes the holder, as far as the server answers. If the hold waits for the holder's
// node, the same request watches it.
func (s *Store) holderOf(h *hold, at position) driver.HeldError {
	held := driver.HeldError{Name: h.name, Mode: at.mode}
	switch {
	case at.holder == "": // no node describes the holder: all permits are Curator's
		return held
	case h.blockedBy == at.holder && at.holder != unfairNode: // the same node: its data do not change
		held = h.blocker
		held.Mode = at.mode // a downgrade may have changed it
		return held
	}
	var data []byte
	var stat *zk.Stat
	var err error
	node := h.container + "/" + at.holder
	if s.keepsNode(h) && slices.Contains(at.ahead, at.holder) {
		data, stat, err = s.watchNode(h, node)
	}
	if stat == nil && err == nil {
		data, stat, err = s.conn.Get(node)
	}
	if err == nil {
		c := decode(data)
		held.Token, held.Holder, held.Remaining = tokenOf(stat.Czxid), c.Holder, c.ttl()
		h.blockedBy, h.blocker = at.holder, held
	}
	return held
}

// ensureQueued makes sure that the hold has a node, and returns its position. If the hold has
// waiters, it watches the nodes ahead. It tries again when the connection breaks.
func (s *Store) ensureQueued(ctx context.Context, h *hold, req *driver.Request) (at position, err error) {
	err = s.retry(ctx, func() (err error) {
		for {
			at, err = s.ensureNode(h, req)
			if err == nil && !at.first {
				h.waited = h.waited || s.keepsNode(h)
				err = s.watchAhead(h, at)
			}
			if !isOutdated(err) || ctx.Err() != nil {
				return err
			}
		}
	})
	return at, err
}

// isOutdated reports whether a request was about something that has changed meanwhile.
func isOutdated(err error) bool { return isAny(err, errCreateAgain, zk.ErrNoNode, zk.ErrBadVersion) }

// ensureNode finds or creates the hold's node.
func (s *Store) ensureNode(h *hold, req *driver.Request) (position, error) {
	if h.unconfirmed {
		if err := s.resolveCreation(h); err != nil {
			return position{}, err
		}
	}
	hasNode := false
	s.withLock(func() { hasNode = h.node != "" })
	if !hasNode {
		if s.opts.Order == Fair && !s.keepsNode(h) {
			if at, err := s.lookAhead(h, req.Mode); err != nil || !at.first {
				return at, err
			}
		}
		return s.create(h, req)
	}
	if at, ok := s.knownPosition(h); ok {
		return at, nil
	}
	return s.queryPosition(h)
}

// queryPosition finds the hold's node in the queue. A server that has lost the leader may answer
// with an old queue. If the node is the first in it, the leader's confirmation proves that it still
// is. If not, queryPosition reads again after the leader's answer, which the server passes on only
// when it is up to date.
func (s *Store) queryPosition(h *hold) (position, error) {
	confirmed := make(chan error, 1)
	go func() { confirmed <- s.confirmSession() }()
	at, located, err := s.readCrowd(h, s.clock.NoLaterThanNow()-maxQueueAge)
	if located && at.first {
		err = s.queryFirst(h)
	}
	if located || err != nil {
		return at, cmp.Or(<-confirmed, err)
	}
	at, err = s.readPosition(h)
	if err := <-confirmed; err != nil {
		return position{}, err
	}
	if err == nil && at.first || h.unconfirmed { // readPosition lost an answer: the caller resolves that first
		return at, err
	}
	return s.readPosition(h)
}

// readPosition finds the hold's node in the queue that the connected server knows.
func (s *Store) readPosition(h *hold) (position, error) {
	asked := s.clock.NoLaterThanNow()
	if h.mode.Limit > 0 {
		return s.readPermit(h, asked)
	}
	if at, located, err := s.readCrowd(h, 0); located || err != nil {
		return at, err
	}
	queue, err := s.queue(h.container)
	if err != nil {
		return position{}, err
	}
	if s.opts.Order == Unfair {
		// Other contenders use the same name. A node that is ours after the queue was
		// listed was ours when it was listed.
		exists, stat, err := s.conn.Exists(h.container + "/" + unfairNode)
		if err != nil {
			return position{}, err
		}
		if !exists || tokenOf(stat.Czxid) != h.token {
			queue = nil
		}
	}
	return s.positionIn(h, queue, asked)
}

// positionIn finds the hold's node in a queue that was read at some moment after asked. A node of
// the order Unfair sorts before all others, but has the lock only if it found no others.
func (s *Store) positionIn(h *hold, queue []contender, asked clock.Instant) (position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(queue, func(c contender) bool { return c.node == h.node })
	if i < 0 {
		h.lost = nil // the owner learns it from the answer
		s.nodeLostLocked(h)
		return position{}, errCreateAgain
	}
	h.seen = asked
	others := queue[:i]
	if s.opts.Order == Unfair {
		others = queue[1:]
	}
	switch {
	case h.held || len(others) == 0:
		return position{first: true}, nil
	case others[0].mode.Limit != h.mode.Limit:
		return s.positionBehindMismatchLocked(h, others[0])
	case s.opts.Order == Unfair:
		return position{ahead: []string{others[0].node}, holder: others[0].node, mode: others[0].mode}, nil
	}
	at := positionOf(queue, i)
	if !at.first && h.mode.Limit == 0 {
		h.position = at
	}
	return at, nil
}

// queue returns the contenders in order. Without a container the queue is empty.
func (s *Store) queue(container string) ([]contender, error) {
	children, _, err := s.conn.Children(container)
	return queueOf(children), ignore(err, zk.ErrNoNode)
}
