package sqlsession

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store. It probes every connection of the locks once.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.startCall(ctx, "renew"); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	defer s.work.Done()
	errs := s.renew(ctx, grants)
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// renew starts the TTL of each grant again if its connection is alive.
func (s *Store) renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	byConn := make(map[*conn][]int)
	s.mu.Lock()
	for i, grant := range grants {
		if h := s.ownedLocked(grant); h != nil {
			byConn[h.conn] = append(byConn[h.conn], i)
		} else {
			errs[i] = driver.ErrNotHeld
		}
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for c, of := range byConn {
		all.Go(func() {
			err := s.explain(ctx, "renew", s.probe(ctx, c))
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, i := range of {
				h := s.ownedLocked(grants[i])
				switch {
				case err != nil:
					errs[i] = err
				case h == nil:
					errs[i] = driver.ErrNotHeld
				default:
					s.extendLocked(h, grants[i].TTL)
				}
			}
		})
	}
	all.Wait()
	return errs
}

// ownedLocked returns the lock of a grant, or nil if it is not held. A token of zero stands for any.
func (s *Store) ownedLocked(grant driver.Grant) *heldLock {
	h := s.ofLocked(grant.Name, grant.Owner)
	if h == nil || grant.Token != 0 && h.token != grant.Token || h.phase != held || !time.Now().Before(h.deadline) {
		return nil
	}
	return h
}
