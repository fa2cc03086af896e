package memlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// head returns the first place of the queue that has not expired, and removes expired ones
// before it. s.mu is held.
func (s *Store) head(name string, now time.Duration) (place, bool) {
	queue := s.queues[name]
	for len(queue) > 0 && queue[0].expires <= now {
		queue = queue[1:]
	}
	s.setQueue(name, queue)
	if len(queue) == 0 {
		return place{}, false
	}
	return queue[0], true
}

// enqueue takes a place for a fair waiter, or extends the place it has. s.mu is held.
func (s *Store) enqueue(req *driver.Request, now time.Duration) {
	if !req.Fair || !req.Queue {
		return
	}
	queue := s.queues[req.Name]
	expires := now + req.TTL
	if i := slices.IndexFunc(queue, func(p place) bool { return p.owner == req.Owner }); i >= 0 {
		queue[i].expires = max(queue[i].expires, expires)
		return
	}
	s.queues[req.Name] = append(queue, place{req.Owner, expires})
}

// dequeue removes the owner's place, and reports whether there was one. s.mu is held.
func (s *Store) dequeue(name string, owner driver.Owner) bool {
	queue := s.queues[name]
	i := slices.IndexFunc(queue, func(p place) bool { return p.owner == owner })
	if i < 0 {
		return false
	}
	s.setQueue(name, slices.Delete(queue, i, i+1))
	return true
}

func (s *Store) setQueue(name string, queue []place) {
	switch {
	case len(queue) > 0:
		s.queues[name] = queue
	case len(s.queues) > 0:
		delete(s.queues, name)
	}
}
