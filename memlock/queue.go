package memlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// place is that of a waiter in the queue of a name.
type place struct {
	owner   driver.Owner
	mode    driver.Mode
	fair    bool
	expires time.Duration
}

// queue returns the places of name that have not expired. s.mu is held.
func (s *Store) queue(name string, now time.Duration) []place {
	queue := slices.DeleteFunc(s.queues[name], func(p place) bool { return p.expires <= now })
	s.setQueue(name, queue)
	return queue
}

// before returns the place that has to be served before req, or nil. A shared request gives way to
// exclusive places, and a permit to those that take the last free permit. An exclusive request gives
// way only if it is fair, to fair places.
func (s *Store) before(l *lock, req *driver.Request, now time.Duration) *place {
	queue := s.queue(req.Name, now)
	free := req.Mode.Limit // permits
	if l != nil {
		free -= len(l.shares)
	}
	for i := range queue {
		p := &queue[i]
		switch {
		case p.owner == req.Owner:
			return nil
		case p.mode.Limit != req.Mode.Limit: // it is refused until the lock is free
		case req.Mode.Limit > 0:
			if free--; free <= 0 {
				return p
			}
		case req.Mode.Shared && !p.mode.Shared:
			return p
		case req.Fair && p.fair && !req.Mode.Shared:
			return p
		}
	}
	return nil
}

// enqueue takes a place for a waiter, or extends the place it has. s.mu is held.
func (s *Store) enqueue(req *driver.Request, now time.Duration) {
	queue, expires := s.queue(req.Name, now), now+driver.PlaceTTL(req.TTL)
	if i := indexOf(queue, req.Owner); i >= 0 {
		queue[i].expires = max(queue[i].expires, expires)
		return
	}
	if req.Fair && !s.hasFairWaiters(req.Name, now) {
		defer s.wakeUnfair(req.Name)
	}
	s.queues[req.Name] = append(queue, place{req.Owner, req.Mode, req.Fair, expires})
}

func (s *Store) hasFairWaiters(name string, now time.Duration) bool {
	return slices.ContainsFunc(s.queue(name, now), func(p place) bool { return p.fair })
}

// dequeue removes the owner's place, and reports whether there was one. s.mu is held.
func (s *Store) dequeue(name string, owner driver.Owner) bool {
	queue := s.queues[name]
	i := indexOf(queue, owner)
	if i >= 0 {
		s.setQueue(name, slices.Delete(queue, i, i+1))
	}
	return i >= 0
}

func indexOf(queue []place, owner driver.Owner) int {
	return slices.IndexFunc(queue, func(p place) bool { return p.owner == owner })
}

func (s *Store) setQueue(name string, queue []place) {
	if len(queue) == 0 {
		delete(s.queues, name)
		return
	}
	s.queues[name] = queue
}
