package etcdlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// place is what is known of the queue before the own key. Nobody ever comes in
// between: keys are only deleted, and the watch tells which.
type place struct {
	asked int64     // the revision at which it was so; zero if nothing is known
	first holderKey // that had the lock
	ahead []string  // the keys before it that are not known to be deleted, the nearest first
	all   bool      // they are all that there are
	stale bool      // deletions after asked may be missed
}

func newPlace(a answer) place {
	return place{asked: a.seen, first: a.first, ahead: a.ahead, all: a.all && len(a.ahead) > 0, stale: true}
}

// followed says whether the watch tells of everything that happens after it was asked
// for, and none of it has passed already. From then on it is kept up to date.
func (p *place) followed(t *topic) bool {
	p.stale = t.from == 0 || t.from > p.asked || t.seen > p.asked
	return !p.stale
}

// deleted takes note that a key was deleted by that revision, and says whether it is
// time to ask again.
func (p *place) deleted(key string, revision int64) (worthIt bool) {
	if p.asked == 0 || p.stale || len(p.ahead) == 0 {
		return true // it is not known better
	}
	if revision <= p.asked {
		return false // that was another key of the same name, before
	}
	at := slices.Index(p.ahead, key)
	if at < 0 {
		return false
	}
	if !p.all {
		return at == 0
	}
	p.ahead = slices.Delete(p.ahead, at, at+1)
	return len(p.ahead) == 0
}

// isFirst says that all who were before are gone.
func (p *place) isFirst() bool { return p.asked != 0 && p.all && !p.stale && len(p.ahead) == 0 }

// known answers an attempt without asking the server, where the watch has told all that
// it would say: that everybody before is gone, on a lease that was renewed a moment ago,
// or, to the first attempt of one who began to watch, that somebody still is there. It
// repeats nothing that the server said longer ago: a server that is gone grants nothing
// and refuses nothing.
func (s *Store) known(h *hold, req *driver.Request) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := s.waiting[h.identity]
	if waits == nil {
		return outcome{}, false
	}
	first := waits.first
	waits.first = false
	switch {
	case h.lease == nil || h.revision == 0 || h.held:
	case h.lease.gone || s.age(h.lease) >= h.lease.room():
	case h.place.isFirst():
		return outcome{grant: s.granted(h, req, answer{revision: h.revision})}, true
	case first && !h.place.stale && len(h.place.ahead) > 0:
		s.expireAt(h, time.Now().Add(req.TTL))
		return outcome{err: s.refusal(h.name, h.place.first)}, true
	}
	return outcome{}, false
}
