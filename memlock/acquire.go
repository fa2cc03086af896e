package memlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/share"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	now := s.now() // other callers do not wait for the clock
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.use(req.Name, now)
	if err := s.refusal(l, &req, now); err != nil {
		return driver.Grant{}, err
	}
	return s.grant(l, &req, now), nil
}

// AcquireAll implements driver.BatchAcquirer.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range reqs {
		if err := s.refusal(s.use(reqs[i].Name, now), &reqs[i], now); err != nil {
			return nil, err
		}
	}
	grants := make([]driver.Grant, len(reqs))
	for i := range reqs {
		grants[i] = s.grant(s.use(reqs[i].Name, now), &reqs[i], now)
	}
	return grants, nil
}

// refusal returns why req, whose record is l, cannot be granted now, or nil if it can. It keeps
// a place for a refused request that wants one.
func (s *Store) refusal(l *lock, req *driver.Request, now int64) error {
	if l.Of(req.Owner) != nil {
		return nil
	}
	sh, p := l.Excluding(req.Mode), (*place)(nil)
	if sh == nil {
		if p = l.Before(s.queue(req.Name, now), req.Owner, req); p == nil {
			return nil
		}
	} else if l.Mode.Limit != req.Mode.Limit {
		return &driver.ModeError{Name: req.Name, Mode: l.Mode}
	}
	held, expires := &driver.HeldError{Name: req.Name}, int64(0)
	if sh != nil {
		held.Mode, held.Token, held.Holder, expires = l.Mode, uint64(sh.Token), sh.Holder, sh.Expires
	} else {
		expires = p.Expires
	}
	if req.Queue && (req.Fair || held.Mode.Shared) {
		s.enqueue(req, now)
	}
	held.Remaining, held.Queued = time.Duration(expires-now), !req.Fair && s.hasFairWaiters(req.Name, now)
	return held
}

// grant gives the lock to req.Owner, or renews it if that owner has it already.
func (s *Store) grant(l *lock, req *driver.Request, now int64) driver.Grant {
	if l == nil {
		if len(s.locks) >= s.cleanAt {
			s.removeUnused(now)
		}
		l = new(lock)
		s.locks[req.Name] = l
	}
	sh := l.Of(req.Owner)
	if sh == nil {
		sh = l.Admit(req.Mode, share.Share[driver.Owner]{Owner: req.Owner, Token: s.last + 1, Since: now, Holder: req.Holder})
		s.last += tokenStep
	}
	sh.Extend(now, int64(req.TTL))
	if req.Queue {
		s.dequeue(req.Name, req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: uint64(sh.Token), TTL: req.TTL}
}

// Downgrade implements driver.Downgrader.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.use(grant.Name, s.now()).Downgrade(grant.Owner, int64(grant.Token)) {
		return driver.ErrNotHeld
	}
	s.wake(grant.Name)
	return nil
}
