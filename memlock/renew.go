package memlock

import (
	"cmp"
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	cause := context.Cause(ctx) // nil if ctx is not done
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range grants {
		g := &grants[i]
		if sh := s.use(g.Name, now).of(g.Owner); cause == nil && sh != nil {
			sh.expires = max(sh.expires, now+g.TTL)
			continue
		}
		if errs == nil {
			errs = make([]error, len(grants))
		}
		errs[i] = cmp.Or(cause, driver.ErrNotHeld)
	}
	return errs
}

// RaiseToken implements driver.TokenRaiser.
func (s *Store) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.use(grant.Name, s.now()).of(grant.Owner)
	if sh == nil {
		return driver.Grant{}, driver.ErrNotHeld
	}
	if sh.token < token || sh.token == grant.Token {
		sh.token = token
	}
	s.last = max(s.last, sh.token+tokenStep-1)
	grant.Token = sh.token
	return grant, nil
}

// Identify implements driver.Identifier.
func (s *Store) Identify(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return s.id, nil
}
