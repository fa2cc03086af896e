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
	if err := ctx.Err(); err != nil {
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

// wake wakes the waiters for which another attempt is worth it: of the fair waiters the
// head, and all others, because the store does not know which of them still want the lock.
// It holds s.mu during the calls, so that none comes after stop.
func (s *Store) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, queued := s.head(name, s.now())
	for _, sub := range s.waiters.Of(name) {
		if !sub.req.Fair || !queued || sub.req.Owner == head.owner {
			sub.wake()
		}
	}
}
