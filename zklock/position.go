package zklock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// position is the place of a hold in the queue. New nodes come last: those ahead are only removed.
type position struct {
	first bool          // the hold has the lock
	age   time.Duration // of the proof that it is the first; zero if the server was asked

	ahead    []string    // the nodes to wait for, if not first: all that exclude it, or the nearest of many
	decisive bool        // the removal of all nodes in ahead proves that the hold is first
	holder   string      // the node of a holder
	mode     driver.Mode // of that holder
}

// maxAhead is up to how many nodes ahead are all watched, so that their removals prove the position
// without a request. Behind more nodes, a waiter watches only the nearest, and reads the queue
// again when that node is removed.
const maxAhead = 3

// positionOf returns the position of the contender with index i in a queue. It waits for the ones
// before it that exclude it. A shared waiter watches the companion of an exclusive contender, and
// reads the queue again when it is removed: that may be a downgrade, or the work of an operator.
func positionOf(queue []contender, i int) position {
	p := position{decisive: true, holder: queue[0].node, mode: queue[0].mode}
	shared := queue[i].mode.Shared
	for _, c := range queue[:i] {
		switch {
		case shared && c.mode.Shared:
		case c.mode.Limit > 0 && c.mode.Limit == queue[i].mode.Limit: // such permits do not exclude each other: readPermit counts lease nodes
		case shared && c.companion != "":
			p.ahead = append(p.ahead, c.companion)
			p.decisive = false
		default:
			p.ahead = append(p.ahead, c.node)
			// With the downgrade of a writer of Curator, a reader with its number appears in the queue.
			p.decisive = p.decisive && (shared || !strings.Contains(c.node, writeBase))
		}
	}
	if n := len(p.ahead); n > maxAhead {
		p.ahead, p.decisive = p.ahead[n-1:], false
	}
	p.first = len(p.ahead) == 0
	return p
}

// noteRemoved notes the removal of a node ahead, and reports whether another attempt is worth it.
func (p *position) noteRemoved(node string) bool {
	at := slices.Index(p.ahead, node)
	if at < 0 {
		*p = position{} // the position is not known any more
		return true
	}
	p.ahead = slices.Concat(p.ahead[:at], p.ahead[at+1:]) // copies of the position stay as they are
	p.first = p.decisive && len(p.ahead) == 0
	return len(p.ahead) == 0
}

// proofParts is the part of the session's timeout, 1/16, for which a proof counts as recent.
const proofParts = 16

// knownPosition returns the position if no request is needed: all nodes ahead were removed, and the
// leader's confirmation and the last sight of the own node are recent; or this is the first attempt
// since Watch, which found nodes ahead, and no removal was reported.
func (s *Store) knownPosition(h *hold) (position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := false // up in the queue of its crowd, but not to its head
	if len(h.position.ahead) == 0 && !h.position.first {
		if at, located := s.locateLocked(h); located {
			h.position, moved = at, !at.first
		}
	}
	switch {
	case h.held: // only the server knows whether it still is
		return position{}, false
	case h.position.first:
		now := s.clock.Now()
		age := max(now-s.confirmed.sent, now-h.seen)
		known := s.confirmed.session != 0 && s.confirmed.session == s.sessionID.Load()
		return position{first: true, age: age}, known && age < s.sessionTimeout()/proofParts
	}
	return h.position, moved || h.firstAttempt && len(h.position.ahead) > 0
}

// confirmation is an answer of the leader: the session lived after the request was sent.
type confirmation struct {
	session int64
	sent    clock.Instant
}

// confirmSession asks the leader whether the session lives.
func (s *Store) confirmSession() error {
	session, sent := s.sessionID.Load(), s.clock.NoLaterThanNow()
	answered := s.limitAnswer()
	_, err := s.conn.Sync(s.rootPath())
	answered()
	if err == nil {
		s.noteConfirmed(session, sent)
	}
	return err
}

// noteConfirmed notes that the leader answered a request of the session.
func (s *Store) noteConfirmed(session int64, sent clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed.session != session || sent > s.confirmed.sent {
		s.confirmed = confirmation{session, sent}
	}
}

// watchAhead watches the nodes ahead of a hold that has waiters.
func (s *Store) watchAhead(h *hold, at position) error {
	s.mu.Lock()
	waits := len(h.waiters) > 0
	for watched := range h.watching {
		if waits && !slices.Contains(at.ahead, h.relative(watched)) {
			s.unregisterLocked(h, watched)
		}
	}
	s.mu.Unlock()
	if !waits {
		return nil
	}
	for _, node := range at.ahead {
		if _, _, err := s.watchNode(h, h.container+"/"+node); err != nil {
			s.withLock(func() { h.position = position{} })
			return err
		}
	}
	return nil
}

// mismatch is a contender in another mode that was first in the queue.
type mismatch struct {
	node  string
	since time.Time // when the hold found the contender
}

// withdrawLimit is how long a contender may take to remove its nodes after a ModeError.
const withdrawLimit = time.Second

// positionBehindMismatchLocked returns the position behind a contender in another mode, the first.
// That contender may have been refused itself and be about to withdraw: a waiter waits for it for
// up to withdrawLimit. After that the contender has the lock: the waiter is woken, and gets a
// ModeError. An attempt that has not waited gets it at once.
func (s *Store) positionBehindMismatchLocked(h *hold, first contender) (position, error) {
	if h.waited && h.mismatch.node != first.node {
		h.mismatch = mismatch{first.node, time.Now()}
		s.backgroundLocked(func(ctx context.Context) {
			_ = backoff.Sleep(ctx, withdrawLimit)
			s.withLock(h.wakeLocked)
		})
	}
	if h.waited && time.Since(h.mismatch.since) < withdrawLimit {
		return position{ahead: []string{first.node}, holder: first.node, mode: first.mode}, nil
	}
	return position{}, &driver.ModeError{Name: h.name, Mode: first.mode}
}
