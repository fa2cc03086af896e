package memlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// RaiseToken implements driver.TokenRaiser.
func (s *Store) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[grant.Name]
	if !l.held(s.now()) || l.owner != grant.Owner {
		return driver.Grant{}, driver.ErrNotHeld
	}
	l.token = max(l.token, token)
	s.last = max(s.last, l.token)
	grant.Token = l.token
	return grant, nil
}

// Identify implements driver.Identifier.
func (s *Store) Identify(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return s.id, nil
}
