package zklock

import (
	"path"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// crowd is the waiters of this store for one name. The exclusive ones of many share what they know of
// the queue: reading it costs the server as much as the queue is long. Store.mu guards the fields.
type crowd struct {
	waiting int         // holds with waiters
	read    *queueRead  // under way; nil if there is none
	queue   *crowdQueue // nil if it is not known
}

// queueRead is a request under way that reads a queue.
type queueRead struct {
	asked clock.Instant
	done  chan struct{}
}

// crowdQueue is the contenders for a name as a server saw them after an instant. Nodes are never inserted
// ahead of others. They are only removed: each waiter watches the nearest one ahead of its own.
type crowdQueue struct {
	asked      clock.Instant
	contenders []contender
	index      map[string]int // of the contenders, by their nodes
	removed    []bool
	head       int // all contenders before it are removed
}

// crowded is from how many waiters of a store on they share what they know of the queue. Fewer watch
// all nodes ahead: see maxAhead.
const crowded = maxAhead

// crowdLocked returns the crowd of a hold that shares what it knows of the queue, or nil.
func (s *Store) crowdLocked(h *hold) *crowd {
	c := s.crowds[h.container]
	if s.opts.Order != Fair || h.mode != (driver.Mode{}) || h.held || c == nil || c.waiting < crowded && c.queue == nil {
		return nil
	}
	return c
}

// joinCrowdLocked counts a hold that has its first waiter.
func (s *Store) joinCrowdLocked(h *hold) {
	if s.crowds[h.container] == nil {
		s.crowds[h.container] = &crowd{}
	}
	s.crowds[h.container].waiting++
}

func (s *Store) leaveCrowdLocked(h *hold) {
	c := s.crowds[h.container]
	if c.waiting--; c.waiting == 0 {
		delete(s.crowds, h.container)
	}
}

// locateLocked finds the position of a hold in the queue of its crowd. It returns false if that queue
// does not say it, because it was read before the hold had its node.
func (s *Store) locateLocked(h *hold) (position, bool) {
	c := s.crowdLocked(h)
	if c == nil || c.queue == nil {
		return position{}, false
	}
	q := c.queue
	i, known := q.index[h.node]
	if !known || q.removed[i] {
		return position{}, false
	}
	for q.removed[q.head] {
		q.head++
	}
	first := q.contenders[q.head]
	if q.head == i {
		return position{first: true}, true
	}
	at := position{holder: first.node, mode: first.mode}
	for i--; q.removed[i]; i-- {
	}
	at.ahead = []string{q.contenders[i].node}
	h.position = at
	return at, true
}

// readCrowd finds the position of a hold in a queue that was read not before an instant. The holds of
// a crowd share the request. It returns false if the hold has to read the queue by itself.
func (s *Store) readCrowd(h *hold, since clock.Instant) (at position, located bool, err error) {
	var c *crowd
	var own *queueRead
	for own == nil {
		s.mu.Lock()
		c = s.crowdLocked(h)
		if c != nil {
			at, located = s.locateLocked(h)
		}
		if c == nil || located && (at.first || c.queue.asked >= since) {
			s.mu.Unlock()
			return at, located, nil
		}
		other := c.read
		if other == nil {
			own = &queueRead{s.clock.NoLaterThanNow(), make(chan struct{})}
			c.read = own
		}
		s.mu.Unlock()
		if other != nil {
			<-other.done // it may have begun before the hold had its node: the next one has not
		}
	}
	contenders, err := s.queue(h.container)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(own.done)
	if c.read = nil; err != nil {
		return position{}, false, err
	}
	c.noteQueue(contenders, own.asked)
	at, located = s.locateLocked(h) // false if all waiters have left meanwhile
	return at, located, nil
}

// noteQueue notes the answer to a read, unless removals alone do not tell which contender is first: a
// writer of Curator may become a reader with the same number, and a permit has another mode. A removal
// that was reported since is found out by the waiter behind that node, which watches it again.
func (c *crowd) noteQueue(contenders []contender, asked clock.Instant) {
	q := &crowdQueue{asked: asked, contenders: contenders, index: make(map[string]int, len(contenders)), removed: make([]bool, len(contenders))}
	for i := range contenders {
		if contenders[i].mode.Limit != 0 || strings.Contains(contenders[i].node, writeBase) {
			return
		}
		q.index[contenders[i].node] = i
	}
	c.queue = q
}

// noteRemovedLocked notes in the queue of a crowd that a node is gone.
func (s *Store) noteRemovedLocked(nodePath string) {
	container, node := path.Split(nodePath)
	if c := s.crowds[strings.TrimSuffix(container, "/")]; c != nil && c.queue != nil {
		if i, known := c.queue.index[node]; known {
			c.queue.removed[i] = true
		}
	}
}

// forgetQueuesLocked makes all crowds read their queues again: removals may have been missed.
func (s *Store) forgetQueuesLocked() {
	for _, c := range s.crowds {
		c.queue = nil
	}
}

// maxQueueAge is how old what a crowd knows of the queue may be when a waiter polls.
const maxQueueAge = time.Second

// queryFirst makes sure that the node of a hold that is the first of its crowd still exists.
func (s *Store) queryFirst(h *hold) error {
	asked := s.clock.NoLaterThanNow()
	exists, _, err := s.conn.Exists(h.container + "/" + h.node)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if exists {
		h.seen = asked
		return nil
	}
	h.lost = nil // the owner learns it from the answer
	s.noteRemovedLocked(h.container + "/" + h.node)
	s.nodeLostLocked(h)
	return errCreateAgain
}
