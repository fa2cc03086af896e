package memlock

import (
	"context"
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
	if l.held(now) {
		if l.owner == req.Owner {
			return nil
		}
		return &driver.HeldError{Name: req.Name, Token: l.token, Holder: l.holder, Remaining: l.expires - now}
	}
	if req.Fair {
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
	if !l.held(now) {
		s.last = max(s.last+1, req.Floor)
		*l = lock{owner: req.Owner, token: s.last, since: now, holder: req.Holder}
	}
	l.expires = max(l.expires, now+req.TTL)
	if req.Fair {
		s.dequeue(req.Name, req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: l.token, TTL: req.TTL}
}
