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
		if sh := s.use(g.Name, now).Of(g.Owner); cause == nil && sh != nil {
			sh.Extend(now, int64(g.TTL))
			continue
		}
		if errs == nil {
			errs = make([]error, len(grants))
		}
		errs[i] = cmp.Or(cause, driver.ErrNotHeld)
	}
	return errs
}
