package zklock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/dlock-go/dlock/internal/tokenstep"
)

type holdID struct {
	name  string
	owner driver.Owner
}

// hold is what an owner has under a name: the lock, a place, or a creation of unknown outcome.
type hold struct {
	holdID
	container string // its path

	// busy is held for a whole operation with all its requests, and guards these fields.
	busy        sync.Mutex
	ended       bool             // it is not in Store.holds any more
	mode        driver.Mode      // of the nodes
	unconfirmed bool             // the creation of nodes is unanswered: they may exist
	blockedBy   string           // the holder's node when the hold was last refused
	blocker     driver.HeldError // what that node said
	waited      bool             // a refused attempt kept the node as a place
	mismatch    mismatch         // the last one
	data        []byte           // of the node
	admitted    string           // the lease node with which the hold has a permit

	// Store.mu guards the rest. id, session, token and version change only with busy held, too.
	id           string        // identifies the nodes; new for each time they are created
	node         string        // name in the container; empty if there is none
	extraNodes   []string      // companion, anchor, lease node or place node, relative to the container
	session      int64         // the ID of the nodes' session
	token        uint64        // the first: of the node or, for a permit, of its lease node
	version      int32         // of the container when the node was created
	seen         clock.Instant // the node existed at some moment after that instant
	held         bool
	leaving      bool          // the store itself removes the node
	watchedBy    uint64        // number of the connection on which the holder's nodes are watched; zero if none
	released     bool          // the outcome of a Release is unknown: the attempt under way is not granted
	keepPlace    bool          // Request.Queue of the last attempt: the place is kept without a watch
	ttl          time.Duration // of the grant
	promised     time.Duration // Grant.TTL of the last grant
	expires      time.Time     // when the lock or the place ends, unless it is renewed
	expiring     bool          // expire is under way
	lost         func()        // may be nil
	waiters      map[*subscribers.Subscriber]struct{}
	watching     map[string]struct{} // the paths for which it is registered
	position     position            // as far as it is known
	firstAttempt bool                // the next attempt is the first since Watch began
}

// pathsLocked returns the nodes that the lock ends with: its node, if there is one, and a permit's
// lease node.
func (h *hold) pathsLocked() []string {
	if h.node == "" {
		return nil
	}
	paths := []string{h.container + "/" + h.node}
	if leaseNode := nodeIn(leasesParent, h.extraNodes); leaseNode != "" {
		paths = append(paths, h.container+"/"+leaseNode)
	}
	return paths
}

// parents returns the parents of the hold's nodes, relative to the container, which comes last.
func (h *hold) parents() []string {
	if h.mode.Limit > 0 {
		return []string{leasesParent, placesParent, ""}
	}
	return []string{""}
}

// relative returns a path without that of the container.
func (h *hold) relative(path string) string { return strings.TrimPrefix(path, h.container+"/") }

// lockHold returns the hold with that ID and locks it for an operation, which unlockHold ends. If
// the hold does not exist, lockHold creates it, or returns nil if create is false.
func (s *Store) lockHold(id holdID, create bool) *hold {
	for {
		s.mu.Lock()
		h := s.holds[id]
		if h == nil && create {
			h = &hold{holdID: id, container: s.containerPath(id.name),
				waiters: make(map[*subscribers.Subscriber]struct{}), watching: make(map[string]struct{})}
			s.holds[id] = h
		}
		s.mu.Unlock()
		if h == nil {
			return nil
		}
		h.busy.Lock()
		if !h.ended {
			return h
		}
		h.busy.Unlock()
	}
}

// unlockHold ends an operation. It forgets a hold without a node and without waiters.
func (s *Store) unlockHold(h *hold) {
	defer h.busy.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.ended && h.node == "" && !h.unconfirmed && len(h.waiters) == 0 {
		h.ended = true
		for path := range h.watching {
			s.unregisterLocked(h, path)
		}
		delete(s.holds, h.holdID)
	}
}

// keepsNode reports whether a refused attempt leaves its node. The node of the order Unfair is no
// place in a queue.
func (s *Store) keepsNode(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Order == Fair && h.waitsLocked()
}

// waitsLocked reports whether the owner waits: another attempt will follow.
func (h *hold) waitsLocked() bool { return h.keepPlace || len(h.waiters) > 0 }

func (s *Store) setExpiryLocked(h *hold, ttl time.Duration) {
	h.expires = time.Now().Add(ttl)
	s.alarm.NoLaterThan(h.expires)
}

// expiredLocked reports whether the hold has expired. A place does not expire while
// it has a waiter: stopping the watch ends it.
func (h *hold) expiredLocked() bool {
	return !time.Now().Before(h.expires) && (h.held || len(h.waiters) == 0)
}

// nodeLostLocked notes that a hold's node is gone, and reports the loss of its lock.
func (s *Store) nodeLostLocked(h *hold) {
	if h.held && !h.leaving && h.node != "" {
		s.reportLossLocked(h)
	}
	if h.node != "" && h.session == s.sessionID.Load() {
		// The extra nodes may still exist.
		container, left := h.container, h.extraNodes
		if h.node != unfairNode { // a name that is used once
			left = slices.Concat(left, []string{h.node})
		}
		s.backgroundLocked(func(ctx context.Context) {
			untilDone(ctx, func() error { return s.deleteIfExists(container, left...) })
		})
	}
	h.node, h.extraNodes, h.held, h.watchedBy = "", nil, false, 0
	h.position = position{}
}

// reportLossLocked calls Request.Lost, once.
func (s *Store) reportLossLocked(h *hold) {
	if lost := h.lost; lost != nil {
		h.lost = nil
		s.backgroundLocked(func(context.Context) { lost() })
	}
}

// keepsPromise reports whether the promise of the last grant can still be kept. If the session was
// resumed on a server with a smaller limit, its timeout may be shorter than before.
func (s *Store) keepsPromise(h *hold) bool { return h.promised <= s.promise(h.ttl, 0) }

// tokenOf returns the first token of a lock. The zxid that created its node, a number that
// rises with every change in ZooKeeper, is the upper part.
func tokenOf(zxid int64) uint64 { return tokenstep.First(uint64(zxid)) }
