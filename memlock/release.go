package memlock

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dequeue(grant.Name, grant.Owner) {
		defer s.wake(grant.Name) // the next waiter may be the head now
	}
	l := s.use(grant.Name, now)
	sh := l.of(grant.Owner)
	if sh == nil || grant.Token != 0 && sh.token != grant.Token {
		return driver.ErrNotHeld
	}
	s.end(grant.Name, l, sh.token)
	return nil
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.use(name, s.now())
	if l == nil {
		return driver.ErrNotHeld
	}
	for _, sh := range l.shares {
		if sh.token <= token && token-sh.token < tokenStep {
			s.end(name, l, sh.token)
			return nil
		}
	}
	return driver.ErrNotHeld
}

// end ends the share with that token of l, the record of name, and wakes the waiters. While there are
// few records it keeps an empty one, because a name that was locked is often locked again. s.mu is
// held.
func (s *Store) end(name string, l *lock, token uint64) {
	l.shares = slices.DeleteFunc(l.shares, func(sh share) bool { return sh.token == token })
	if len(l.shares) == 0 && len(s.locks) > minRecords {
		delete(s.locks, name)
	}
	s.wake(name)
}
