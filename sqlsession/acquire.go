package sqlsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	const op = "acquire"
	if err := s.begin(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for tries := 1; ; {
		h, fresh, changed, err := s.claim(req)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case changed != nil:
			if err := s.wait(ctx, changed); err != nil {
				return driver.Grant{}, fmt.Errorf("%w: %s: an earlier call for %q has no outcome yet: %w", driver.ErrUnreachable, op, req.Name, err)
			}
			continue
		case !fresh:
			return s.again(ctx, h, req)
		}
		err = s.take(ctx, h)
		if errors.Is(s.fail(ctx, op, err), driver.ErrUnreachable) && !errors.Is(err, errPoolInUse) && tries < takeTries {
			tries++
			continue
		}
		if err != nil {
			return driver.Grant{}, s.fail(ctx, op, err)
		}
		s.mu.Lock()
		grant := h.grant()
		s.mu.Unlock()
		return grant, nil
	}
}

// takeTries is how often a connection that fails is replaced by another one: all that
// the pool kept may have ended unnoticed while nobody used them. What was taken on
// one ends with it.
const takeTries = 5

// claim decides among the owners of this store: a fresh heldLock that is to be taken,
// one that the owner has already, or a change to wait for. While the store takes or gives up
// the lock, it does not know whether the server holds it, and reports no other owner.
func (s *Store) claim(req driver.Request) (h *heldLock, fresh bool, changed <-chan struct{}, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.locks[req.Name]
	switch {
	case s.closed:
		return nil, false, nil, driver.ErrClosed
	case h == nil:
		h = &heldLock{name: req.Name, owner: req.Owner, ttl: req.TTL, holder: req.Holder, lost: req.Lost}
		s.locks[req.Name] = h
		return h, true, nil, nil
	case h.phase == held && !now.Before(h.deadline):
		changed = h.changedLocked()
		s.expireLocked(h)
		return nil, false, changed, nil
	case h.phase != held:
		return nil, false, h.changedLocked(), nil
	case h.owner != req.Owner:
		return nil, false, nil, h.heldError(now)
	}
	return h, false, nil, nil
}

// take asks the server for a new heldLock.
func (s *Store) take(ctx context.Context, h *heldLock) error {
	h.key = s.key(h.name)
	if s.scheme == Session {
		return s.takeSession(ctx, h)
	}
	return s.takeRow(ctx, h)
}

// again is Acquire for the owner who has the lock.
func (s *Store) again(ctx context.Context, h *heldLock, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	h.lost = req.Lost
	grant := h.grant()
	s.mu.Unlock()
	grant.TTL = req.TTL
	if err := s.confirm(ctx, []driver.Grant{grant})[0]; err != nil {
		return driver.Grant{}, fmt.Errorf("%w: acquire: %w", driver.ErrUnreachable, errConnGone)
	}
	return grant, nil
}
