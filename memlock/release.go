package memlock

import (
	"context"
	"math"

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
	sh := l.Of(grant.Owner)
	if sh == nil || grant.Token != 0 && sh.Token != int64(grant.Token) {
		return driver.ErrNotHeld
	}
	return s.end(grant.Name, l, sh.Token, sh.Token)
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(min(token, math.MaxInt64))
	return s.end(name, s.use(name, s.now()), last-tokenStep+1, last)
}

// end ends the share of l, the record of name, whose token is one of first to last, and wakes the
// waiters. While there are few records it keeps an empty one, because a name that was locked is often
// locked again. s.mu is held.
func (s *Store) end(name string, l *lock, first, last int64) error {
	if !l.End(first, last) {
		return driver.ErrNotHeld
	}
	if len(l.Shares) == 0 && len(s.locks) > minRecords {
		delete(s.locks, name)
	}
	s.wake(name)
	return nil
}
