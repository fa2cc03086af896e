package etcdlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// position is where a place is in the queue: the keys ahead as the server saw them, kept up to date
// by the watch. No key is ever inserted ahead of another. Keys are only deleted.
type position struct {
	queueView
	stale bool // deletions after that revision may have been missed
}

// follow makes the watch keep the position up to date, by noteDeleted. It returns false if the
// watch may have missed a deletion since the server saw the queue, or has already reported one.
func (p *position) follow(nw *nameWatch) bool {
	p.stale = nw.from == 0 || nw.from > p.revision || nw.lastDeletion > p.revision
	return !p.stale
}

// noteDeleted records that a revision deleted a key, and reports whether the waiter has to ask.
func (p *position) noteDeleted(key string, revision int64) (ask bool) {
	if p.stale || p.knownAheadAllow() {
		return true // the watch cannot decide: ask
	}
	if revision <= p.revision {
		return false // an earlier key with the same name
	}
	i := slices.Index(p.ahead, key)
	if i < 0 {
		return false
	}
	p.ahead = slices.Delete(p.ahead, i, i+1)
	wasFirst := i == len(p.ahead) // now the next key has the lock, perhaps in another mode
	return p.knownAheadAllow() || wasFirst && p.isMismatch()
}

// isFree reports whether enough keys ahead are known to be deleted.
func (p *position) isFree() bool { return !p.stale && p.aheadAllow() }

// outcomeFromWatch returns the outcome of an attempt without a request, if the watch proves it: all
// keys ahead are deleted and the etcd lease was just renewed, which is a grant, or this is the
// first attempt since Watch and there are keys ahead, which is a refusal. Later attempts ask, so
// that they notice a server that is gone. A shared waiter asks before it is granted the lock,
// because its watch does not report that its own key was deleted.
func (s *Store) outcomeFromWatch(h *hold, req *driver.Request) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[h.holdID]
	switch {
	case s.closed: // Close would not report the loss of a grant
		return outcome{err: driver.ErrClosed}, true
	case w == nil:
		return outcome{}, false
	}
	first := !w.asked
	w.asked = true
	switch { // the first two cases prove nothing
	case h.lease == nil || h.revision == 0 || h.held:
	case h.lease.gone || s.ageLocked(h.lease) >= h.lease.slack():
	case h.position.isFree() && !h.mode.Shared:
		return outcome{grant: s.recordGrantLocked(h, req, h.revision)}, true
	case first && !h.position.stale && !h.position.knownAheadAllow():
		s.setExpiryLocked(h, time.Now().Add(req.TTL))
		return outcome{err: heldError(h.name, h.position.first)}, true
	}
	return outcome{}, false
}

// withdrawLimit is how long a request that was refused for its mode may take to delete its key.
const withdrawLimit = time.Second

// mayWithdrawLocked reports whether the first key, in another mode, may be that of a request that
// was refused itself and is about to delete it. The waiter waits for that, and is woken after
// withdrawLimit: a key that is still there then has the lock.
func (s *Store) mayWithdrawLocked(h *hold, first holderKey) bool {
	if h.mismatch != first.revision {
		h.mismatch, h.mismatchFound = first.revision, time.Now()
		s.backgroundLocked(func() {
			_ = backoff.Sleep(s.ctx, withdrawLimit)
			s.mu.Lock()
			defer s.mu.Unlock()
			if w := s.waiters[h.holdID]; w != nil && !h.held && !h.ended {
				h.position.stale = true // so that the waiter asks
				w.wake()
			}
		})
	}
	return time.Since(h.mismatchFound) < withdrawLimit
}
