package memlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if len(s.queues) > 0 && s.dequeue(grant.Name, grant.Owner) {
		defer s.wake(grant.Name) // the next waiter may be the head now
	}
	l := s.heldBy(grant.Name, grant.Owner, grant.Token)
	if l == nil {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	s.free(grant.Name, l)
	waited := s.waiters.Len() > 0
	s.mu.Unlock()
	if waited {
		s.wake(grant.Name)
	}
	return nil
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	l := s.locks[name]
	if !l.held(s.now()) || l.token != token {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	s.free(name, l)
	s.mu.Unlock()
	s.wake(name)
	return nil
}

// free ends a lock. While there are few records it keeps an empty one, because a name that was
// locked is often locked again.
func (s *Store) free(name string, l *lock) {
	if *l = (lock{}); len(s.locks) > minRecords {
		delete(s.locks, name)
	}
}
