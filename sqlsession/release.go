package sqlsession

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	const op = "release"
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	defer s.work.Done()
	for {
		h, changed, err := s.part(grant)
		if err != nil {
			return err
		}
		if changed == nil {
			return s.fail(ctx, op, s.giveUp(ctx, h))
		}
		if err := s.wait(ctx, changed); err != nil {
			return s.fail(ctx, op, err)
		}
	}
}

// part finds what to give up, and makes it leave: a heldLock, or a change to wait
// for, because the server is still being asked.
func (s *Store) part(grant driver.Grant) (*heldLock, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.locks[grant.Name]
	switch {
	case h == nil, h.owner != grant.Owner:
		return nil, nil, driver.ErrNotHeld
	case h.phase != held:
		return nil, h.changedLocked(), nil
	case grant.Token != 0 && grant.Token != h.token:
		return nil, nil, driver.ErrNotHeld
	case !time.Now().Before(h.deadline):
		s.expireLocked(h)
		return nil, nil, driver.ErrNotHeld
	}
	h.phase = leaving
	return h, nil, nil
}

// giveUp gives up a heldLock that is leaving. Where the connection turns out to be
// gone the lock was not held any more, perhaps for longer than anybody knew.
func (s *Store) giveUp(ctx context.Context, h *heldLock) error {
	c := h.conn
	if err := c.enter(ctx); err != nil {
		return s.stay(h, err)
	}
	return s.perform(ctx, c, func() error { return s.cut(c, h) })
}

// cut is giveUp for whoever uses the conn already.
func (s *Store) cut(c *conn, h *heldLock) error {
	if !s.unlock(c, h) {
		s.lose(c)
		s.settle(h)
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, errConnGone)
	}
	s.settle(h)
	return nil
}

// unlock gives up the server's lock. It is false if that was not there.
func (s *Store) unlock(c *conn, h *heldLock) bool {
	if s.scheme == Session {
		return s.unlockSession(c, h.key)
	}
	return s.unlockRow(c, h.key)
}

// stay keeps a heldLock that was to leave, because the server was not even asked.
func (s *Store) stay(h *heldLock, reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[h.name] != h { // it was lost meanwhile
		return driver.ErrNotHeld
	}
	h.phase = held
	h.wakeLocked()
	return reason
}
