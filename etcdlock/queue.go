package etcdlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// place is a place in the queue: the keys ahead of the own as the server saw them, kept up to
// date by the watch. No key is ever inserted ahead of another. Keys are only deleted.
type place struct {
	queueView      // its revision is zero if nothing is known
	stale     bool // deletions after that revision may have been missed
}

func newPlace(v queueView) place {
	v.complete = v.complete && len(v.ahead) > 0
	return place{queueView: v, stale: true}
}

// follow reports whether the watch reports every deletion since the server saw the queue, and has
// reported none of them yet. From then on deleted keeps the place up to date.
func (p *place) follow(w *queueWatch) bool {
	p.stale = w.from == 0 || w.from > p.revision || w.lastDeletion > p.revision
	return !p.stale
}

// deleted records that a revision deleted a key, and reports whether asking the server is worth it.
func (p *place) deleted(key string, revision int64) (ask bool) {
	if p.revision == 0 || p.stale || len(p.ahead) == 0 {
		return true // nothing is known
	}
	if revision <= p.revision {
		return false // an earlier key with the same name
	}
	i := slices.Index(p.ahead, key)
	if i < 0 {
		return false
	}
	if !p.complete {
		return i == 0
	}
	p.ahead = slices.Delete(p.ahead, i, i+1)
	return len(p.ahead) == 0
}

// isFirst reports whether all keys ahead are known to be deleted.
func (p *place) isFirst() bool {
	return p.revision != 0 && p.complete && !p.stale && len(p.ahead) == 0
}

// outcomeFromWatch returns the outcome of an attempt without asking the server, if the watch has
// reported all that the server would say: all keys ahead are deleted, on a lease that was just
// renewed. The first attempt after Watch is refused if there still are keys ahead. It never
// repeats an older answer: a server that is gone grants nothing and refuses nothing.
func (s *Store) outcomeFromWatch(h *hold, req *driver.Request) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[h.holdID]
	if w == nil {
		return outcome{}, false
	}
	first := !w.asked
	w.asked = true
	switch {
	case h.lease == nil || h.revision == 0 || h.held:
	case h.lease.gone || s.age(h.lease) >= h.lease.slack():
	case h.place.isFirst():
		return outcome{grant: s.granted(h, req, h.revision)}, true
	case first && !h.place.stale && len(h.place.ahead) > 0:
		s.expireAt(h, time.Now().Add(req.TTL))
		return outcome{err: heldError(h.name, h.place.first)}, true
	}
	return outcome{}, false
}
