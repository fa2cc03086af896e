package memlock

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/share"
)

type place = share.Place[driver.Owner]

// queue returns the places of name that have not expired. s.mu is held.
func (s *Store) queue(name string, now int64) []place {
	queue := slices.DeleteFunc(s.queues[name], func(p place) bool { return p.Expires <= now })
	s.setQueue(name, queue)
	return queue
}

// enqueue takes a place for a waiter, or extends the place it has. s.mu is held.
func (s *Store) enqueue(req *driver.Request, now int64) {
	queue, expires := s.queue(req.Name, now), now+int64(driver.PlaceTTL(req.TTL))
	if i := indexOf(queue, req.Owner); i >= 0 {
		queue[i].Expires = max(queue[i].Expires, expires)
		return
	}
	if req.Fair && !s.hasFairWaiters(req.Name, now) {
		defer s.wakeUnfair(req.Name)
	}
	s.queues[req.Name] = append(queue, place{Owner: req.Owner, Mode: req.Mode, Fair: req.Fair, Expires: expires})
}

func (s *Store) hasFairWaiters(name string, now int64) bool {
	return slices.ContainsFunc(s.queue(name, now), func(p place) bool { return p.Fair })
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
	return slices.IndexFunc(queue, func(p place) bool { return p.Owner == owner })
}

func (s *Store) setQueue(name string, queue []place) {
	if len(queue) == 0 {
		delete(s.queues, name)
		return
	}
	s.queues[name] = queue
}
