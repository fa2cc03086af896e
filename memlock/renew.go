package memlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(grants))
		}
		errs[i] = err
	}
	if ctx.Err() != nil {
		for i := range grants {
			fail(i, context.Cause(ctx))
		}
		return errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range grants {
		g := &grants[i]
		if l := s.locks[g.Name]; l.held(now) && l.owner == g.Owner {
			l.expires = max(l.expires, now+g.TTL)
		} else {
			fail(i, driver.ErrNotHeld)
		}
	}
	return errs
}
