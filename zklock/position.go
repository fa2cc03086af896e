package zklock

import (
	"path"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// position is the place of an acquisition in the queue. New nodes come last: the nodes
// ahead of an acquisition are only removed.
type position struct {
	first bool
	age   time.Duration // of the proof that it is the first; zero if the server was asked

	ahead []string // the nodes to wait for, if not first: all before it, or the nearest of many
	all   bool     // ahead contains all nodes before it
	head  string   // the holder's node
}

// maxAhead is up to how many nodes ahead are all watched, so that their removals prove the
// position without a request. Behind more nodes, a waiter watches the nearest, and asks for
// its position when that node is removed.
const maxAhead = 3

// positionOf returns the position of the node with index i in a queue.
func positionOf(queue []string, i int) position {
	from := 0
	if i > maxAhead {
		from = i - 1
	}
	return position{ahead: slices.Clone(queue[from:i]), all: from == 0, head: queue[0]}
}

// removed notes the removal of a node ahead, and reports whether another attempt is worth it.
func (p *position) removed(node string) bool {
	at := slices.Index(p.ahead, node)
	if at < 0 {
		*p = position{} // it is not known any more
		return true
	}
	p.ahead = slices.Concat(p.ahead[:at], p.ahead[at+1:]) // copies of the position stay as they are
	p.first = p.all && len(p.ahead) == 0
	return len(p.ahead) == 0
}

// knownPosition returns the position if it is known without a request. Either the watches
// have shown that the acquisition is the first, and the leader confirmed the session and
// its node existed a moment ago; or there was no attempt since Watch found the nodes ahead.
func (s *Store) knownPosition(a *acquisition) (position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.granted: // the server has to be asked whether it still is
		return position{}, false
	case a.at.first:
		now := s.clock.Now()
		age := max(now-s.confirmed.sent, now-a.seen)
		known := s.confirmed.session != 0 && s.confirmed.session == s.session.Load()
		return position{first: true, age: age}, known && age < s.sessionTimeout()/16
	}
	return a.at, a.fresh && len(a.at.ahead) > 0
}

// confirmation is an answer of the leader: the session lived after the request was sent.
type confirmation struct {
	session int64
	sent    clock.Instant
}

// confirmSession asks the leader whether the session lives.
func (s *Store) confirmSession() error {
	session, sent := s.session.Load(), s.clock.NoLaterThanNow()
	_, err := s.conn.Sync(s.rootPath())
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

// watchAhead watches the nodes ahead of an acquisition that has waiters.
func (s *Store) watchAhead(a *acquisition, at position) error {
	s.mu.Lock()
	waits := len(a.waiters) > 0
	for watched := range a.watching {
		if waits && !slices.Contains(at.ahead, path.Base(watched)) {
			s.unwatchNodeLocked(a, watched)
		}
	}
	s.mu.Unlock()
	if !waits {
		return nil
	}
	for _, node := range at.ahead {
		if _, _, err := s.watchNode(a, a.container+"/"+node); err != nil {
			s.locked(func() { a.at = position{} })
			return err
		}
	}
	return nil
}

// nodeChangedLocked notes an event of a watched node, and reports whether another attempt is
// worth it.
func (a *acquisition) nodeChangedLocked(event zk.Event) bool {
	delete(a.watching, event.Path)
	if event.Type != zk.EventNodeDeleted {
		a.at = position{}
		return true
	}
	return a.at.removed(path.Base(event.Path))
}
