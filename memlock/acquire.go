package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.locks[req.Name]
	if err := s.refusal(l, &req, now); err != nil {
		s.enqueue(&req, now)
		return driver.Grant{}, err
	}
	return s.grant(l, &req, now), nil
}

// AcquireAll implements driver.BatchAcquirer.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range reqs {
		if err := s.refusal(s.locks[reqs[i].Name], &reqs[i], now); err != nil {
			return nil, err
		}
	}
	grants := make([]driver.Grant, len(reqs))
	for i := range reqs {
		grants[i] = s.grant(s.locks[reqs[i].Name], &reqs[i], now)
	}
	return grants, nil
}

// refusal returns why req, whose record is l, cannot be granted now, or nil if it can.
func (s *Store) refusal(l *lock, req *driver.Request, now time.Duration) error {
	switch {
	case l.held(now) && l.owner != req.Owner:
		return &driver.HeldError{Name: req.Name, Token: l.token, Holder: l.holder, Remaining: l.expires - now}
	case !l.held(now) && req.Fair:
		if head, ok := s.head(req.Name, now); ok && head.owner != req.Owner {
			return &driver.HeldError{Name: req.Name, Remaining: head.expires - now}
		}
	}
	return nil
}

// grant gives the lock to req.Owner, or renews it if that owner has it already.
func (s *Store) grant(l *lock, req *driver.Request, now time.Duration) driver.Grant {
	if l == nil {
		if len(s.locks) >= s.cleanAt {
			s.removeUnused(now)
		}
		l = new(lock)
		s.locks[req.Name] = l
	}
	span := max(1, req.Span)
	if !l.held(now) {
		token := max(s.last+1, req.Floor)
		s.last = token + span - 1
		*l = lock{owner: req.Owner, token: token, since: now, holder: req.Holder}
	}
	l.expires = max(l.expires, now+req.TTL)
	if req.Fair {
		s.dequeue(req.Name, req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: l.token, Span: span, TTL: req.TTL}
}

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
	if i := indexOf(queue, req.Owner); i >= 0 {
		queue[i].expires = max(queue[i].expires, now+req.TTL)
	} else {
		s.queues[req.Name] = append(queue, place{req.Owner, now + req.TTL})
	}
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
	switch {
	case len(queue) > 0:
		s.queues[name] = queue
	case len(s.queues) > 0:
		delete(s.queues, name)
	}
}
