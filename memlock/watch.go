package memlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// subscription is one call of Watch.
type subscription struct {
	req  driver.Request
	wake func()
}

// Watch implements driver.Watcher.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	sub := &subscription{req, wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.Add(req.Name, sub)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters.Remove(req.Name, sub)
	}, nil
}

// wakeUnfair wakes the waiters that are not fair, so that they queue behind the first fair waiter.
// s.mu is held.
func (s *Store) wakeUnfair(name string) {
	for _, sub := range s.waiters.Of(name) {
		if !sub.req.Fair {
			sub.wake()
		}
	}
}

// wake wakes the waiters for which another attempt is worth it: those that need not give way
// to a place in the queue. s.mu is held, so that no call comes after stop.
func (s *Store) wake(name string) {
	if s.waiters.Len() == 0 {
		return
	}
	now := s.now()
	l, queue := s.use(name, now), s.queue(name, now)
	for _, sub := range s.waiters.Of(name) {
		if l.Before(queue, sub.req.Owner, &sub.req) == nil {
			sub.wake()
		}
	}
}
