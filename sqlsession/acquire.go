package sqlsession

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// maxConnTries is how often a connection that fails is replaced: all connections that idle in
// the pool may have ended unnoticed. What was acquired on a connection ends with it.
const maxConnTries = 5

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	const op = "acquire"
	if req.Mode != (driver.Mode{}) && (req.Mode.Limit > 0 || !s.offersShared()) {
		return driver.Grant{}, fmt.Errorf("%s: %w", op, driver.ErrUnsupported)
	}
	if err := s.startCall(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for tries := 1; ; {
		h, fresh, changed, err := s.register(req)
		switch {
		case err != nil:
			return driver.Grant{}, s.keepPlace(ctx, &req, err)
		case changed != nil:
			if err := wait(ctx, changed); err != nil {
				return driver.Grant{}, fmt.Errorf("%w: %s: an earlier call for %q has no outcome yet: %w", driver.ErrUnreachable, op, req.Name, err)
			}
			continue
		case !fresh:
			return s.acquireAgain(ctx, h, req)
		}
		h.key = s.key(h.name)
		if s.scheme == Session {
			err = s.acquireSession(ctx, h)
		} else {
			err = s.acquireRow(ctx, h)
		}
		failure := s.explain(ctx, op, err)
		switch {
		case err == nil:
			_ = s.leavePlace(ctx, req.Name, req.Owner) // a place that is left expires
			s.mu.Lock()
			defer s.mu.Unlock()
			return h.grant(), nil
		case errors.Is(err, errPoolInUse) && tries == 1:
			return driver.Grant{}, driver.NotSent(failure)
		case !errors.Is(failure, driver.ErrUnreachable), errors.Is(err, errPoolInUse), errors.Is(err, errRowLocked), tries == maxConnTries, ctx.Err() != nil:
			return driver.Grant{}, s.keepPlace(ctx, &req, failure)
		}
		tries++
	}
}

// register decides among the owners of this store. It returns a fresh lock that the server
// has to be asked for, or the lock that the owner holds already, or a change to wait for.
// While the store acquires or releases the lock for another owner, it does not know whether
// the server holds it, so that it returns no [driver.HeldError].
func (s *Store) register(req driver.Request) (h *heldLock, fresh bool, changed <-chan struct{}, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.decidingLocked(&req, now)
	switch {
	case s.closed:
		return nil, false, nil, driver.ErrClosed
	case h == nil:
		h = &heldLock{name: req.Name, owner: req.Owner, ttl: req.TTL, holder: req.Holder, lost: req.Lost, shared: req.Mode.Shared}
		s.locks[req.Name] = slices.Insert(s.locks[req.Name], 0, h)
		return h, true, nil, nil
	case h.phase != held:
		return nil, false, h.changedLocked(), nil
	case !now.Before(h.deadline):
		s.expireLocked(h)
		return nil, false, h.changedLocked(), nil
	case h.owner != req.Owner:
		return nil, false, nil, &driver.HeldError{Name: h.name, Token: h.token, Mode: driver.Mode{Shared: h.shared},
			Holder: h.holder, Remaining: h.deadline.Sub(now)}
	}
	return h, false, nil, nil
}

// decidingLocked returns the lock of this store that decides about a request, nil if none does: that
// of the owner itself, or one that excludes the request, preferably the one that is held for longest.
func (s *Store) decidingLocked(req *driver.Request, now time.Time) (found *heldLock) {
	if own := s.ofLocked(req.Name, req.Owner); own != nil {
		return own
	}
	isHeld := func(h *heldLock) bool { return h != nil && h.phase == held && now.Before(h.deadline) }
	for _, h := range s.locks[req.Name] {
		switch {
		case h.shared && req.Mode.Shared:
		case !isHeld(found), isHeld(h) && h.deadline.After(found.deadline):
			found = h
		}
	}
	return found
}

// acquireAgain is Acquire for the owner that holds the lock.
func (s *Store) acquireAgain(ctx context.Context, h *heldLock, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	h.lost = req.Lost
	grant := h.grant()
	s.mu.Unlock()
	grant.TTL = req.TTL
	if err := s.renew(ctx, []driver.Grant{grant})[0]; err != nil {
		if !errors.Is(err, driver.ErrNotHeld) {
			return driver.Grant{}, err
		}
		return driver.Grant{}, fmt.Errorf("%w: acquire: %w", driver.ErrUnreachable, errConnGone)
	}
	return grant, nil
}
