package sqlsession

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store. It asks every connection once whether it is
// still the one that the locks are on.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	errs := make([]error, len(grants))
	if err := s.begin(ctx, "renew"); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer s.work.Done()
	errs = s.confirm(ctx, grants)
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// confirm starts the TTL of each grant again whose connection is alive.
func (s *Store) confirm(ctx context.Context, grants []driver.Grant) []error {
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
	slots := make(chan struct{}, maxProbes)
	var all sync.WaitGroup
	for c, of := range byConn {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			err := s.fail(ctx, "renew", s.probe(ctx, c))
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, i := range of {
				errs[i] = s.confirmLocked(grants[i], err)
			}
		})
	}
	all.Wait()
	return errs
}

// ownedLocked is the heldLock of a grant that is held, nil if it is not.
func (s *Store) ownedLocked(grant driver.Grant) *heldLock {
	h := s.locks[grant.Name]
	if h == nil || h.owner != grant.Owner || h.token != grant.Token || h.phase != held || !time.Now().Before(h.deadline) {
		return nil
	}
	return h
}

func (s *Store) confirmLocked(grant driver.Grant, err error) error {
	if err != nil {
		return err
	}
	h := s.ownedLocked(grant)
	if h == nil {
		return driver.ErrNotHeld
	}
	s.extendLocked(h, grant.TTL)
	return nil
}
