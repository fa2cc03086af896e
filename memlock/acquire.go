package memlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
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
func (s *Store) refusal(l *lock, req *driver.Request, now time.Duration) error {
	if l.of(req.Owner) != nil {
		return nil
	}
	if sh := l.excluding(req.Mode); sh != nil {
		if sh.mode.Limit != req.Mode.Limit {
			return &driver.ModeError{Name: req.Name, Mode: sh.mode}
		}
		if req.Queue && (req.Fair || sh.mode.Shared) {
			s.enqueue(req, now)
		}
		return &driver.HeldError{Name: req.Name, Mode: sh.mode, Token: sh.token, Holder: sh.holder, Remaining: sh.expires - now,
			Queued: !req.Fair && s.hasFairWaiters(req.Name, now)}
	}
	if p := s.before(l, req, now); p != nil {
		if req.Queue && req.Fair {
			s.enqueue(req, now)
		}
		return &driver.HeldError{Name: req.Name, Remaining: p.expires - now, Queued: !req.Fair && s.hasFairWaiters(req.Name, now)}
	}
	return nil
}

// excluding returns a share that excludes a new holder with mode, or nil. Of several shares it
// returns the one whose expiry may admit the new holder: of permits the first, of shared ones
// the last.
func (l *lock) excluding(mode driver.Mode) *share {
	if l == nil || len(l.shares) == 0 {
		return nil
	}
	sh := &l.shares[0]
	switch {
	case sh.mode.Limit != mode.Limit:
		return sh
	case mode.Limit > 0 && len(l.shares) < mode.Limit:
		return nil
	case mode.Shared && sh.mode.Shared:
		return nil
	}
	for i := range l.shares {
		sooner := l.shares[i].expires < sh.expires
		if sooner == (mode.Limit > 0) {
			sh = &l.shares[i]
		}
	}
	return sh
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
	sh := l.of(req.Owner)
	if sh == nil {
		token := s.last + 1
		s.last += tokenStep
		l.shares = append(l.shares, share{mode: req.Mode, owner: req.Owner, token: token, since: now, holder: req.Holder})
		sh = &l.shares[len(l.shares)-1]
	}
	sh.expires = max(sh.expires, now+req.TTL)
	if req.Queue {
		s.dequeue(req.Name, req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: sh.token, TTL: req.TTL}
}

// Downgrade implements driver.Downgrader.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.use(grant.Name, s.now()).of(grant.Owner)
	if sh == nil || sh.mode.Limit > 0 {
		return driver.ErrNotHeld
	}
	sh.mode.Shared = true
	s.wake(grant.Name)
	return nil
}
