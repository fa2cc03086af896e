package zklock

import (
	"path"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// position is where a claim is in the queue. Nobody ever comes in between: nodes
// before it are only removed.
type position struct {
	first bool
	age   time.Duration // since when that is known of session and node, if it was not asked just now

	ahead []string // the nodes to wait for, if not first: all before it or, if these are many, the nearest
	all   bool     // they are all
	head  string   // the node of the one who has the lock
}

// fewAhead is how many nodes before its own somebody watches, each of which goes
// without anybody asking anything. Who has more before it watches the nearest, and looks
// again when that is gone.
const fewAhead = 3

// positionOf is that of the node with this index in a queue.
func positionOf(queue []string, i int) position {
	from := 0
	if i > fewAhead {
		from = i - 1
	}
	return position{ahead: slices.Clone(queue[from:i]), all: from == 0, head: queue[0]}
}

// clone shares nothing with what the watches change.
func (p position) clone() position {
	p.ahead = slices.Clone(p.ahead)
	return p
}

// gone takes note that a node before it was removed, and says whether it is time to
// try again.
func (p *position) gone(node string) bool {
	at := slices.Index(p.ahead, node)
	if at < 0 {
		*p = position{} // it is not known any more
		return true
	}
	p.ahead = slices.Delete(p.ahead, at, at+1)
	p.first = p.all && len(p.ahead) == 0
	return len(p.ahead) == 0
}

// told is what is known of a claim's position without asking: that it is the first,
// because the watches said so, in a session that the leader knew a moment ago, and with a
// node that was there a moment ago, which nobody watches; or, until the first attempt after
// it began to watch, what was before it then.
func (s *Store) told(c *claim) (position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.granted: // whether that is still so has to be asked
		return position{}, false
	case c.at.first:
		age, known := s.vouchedLocked()
		age = max(age, s.clock.Now()-c.seen)
		return position{first: true, age: age}, known && age < s.sessionTimeout()/16
	}
	return c.at.clone(), c.unasked && len(c.at.ahead) > 0
}

// asked says that there was an attempt.
func (s *Store) asked(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.unasked = false
}

// vouch takes note that the leader has answered, in a session, what was sent then.
func (s *Store) vouch(session int64, sent clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vouched.session != session || sent > s.vouched.sent {
		s.vouched = vouched{session, sent}
	}
}

type vouched struct {
	session int64
	sent    clock.Instant
}

// vouchedLocked is how long ago the leader was last known to know the session; false
// if it never was.
func (s *Store) vouchedLocked() (age time.Duration, ok bool) {
	return s.clock.Now() - s.vouched.sent, s.live != 0 && s.vouched.session == s.live
}

// watchAhead makes the server tell when the nodes are removed that a claim waits for.
func (s *Store) watchAhead(c *claim, at position) error {
	s.mu.Lock()
	for watched := range c.watching {
		if !slices.Contains(at.ahead, path.Base(watched)) {
			s.unwatchLocked(c, watched)
		}
	}
	s.mu.Unlock()
	for _, node := range at.ahead {
		if _, _, err := s.watchNode(c, c.parent+"/"+node); err != nil {
			s.mu.Lock()
			c.at = position{}
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

// removedLocked takes note that something happened to a node that a claim watched, and
// says whether it is time to try again.
func (c *claim) removedLocked(event zk.Event) bool {
	delete(c.watching, event.Path)
	if event.Type != zk.EventNodeDeleted {
		c.at = position{}
		return true
	}
	return c.at.gone(path.Base(event.Path))
}
