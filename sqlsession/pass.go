package sqlsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Pass implements driver.Passer for [Session]: the connection keeps the lock, and only
// a new token is drawn. [ForUpdate] cannot, because a token that is written in the
// transaction which holds the row would be lost with it.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	const op = "pass"
	if s.scheme != Session {
		return driver.Grant{}, fmt.Errorf("%w: scheme %v cannot pass locks on", driver.ErrUnsupported, s.scheme)
	}
	if err := s.begin(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for {
		h, mine, changed := s.part(grant)
		switch {
		case h == nil:
			return driver.Grant{}, driver.ErrNotHeld
		case mine:
			next, err := s.passLock(ctx, h, req)
			if !errors.Is(err, errConnGone) {
				return next, s.fail(ctx, op, err)
			}
		}
		if err := s.wait(ctx, changed); err != nil {
			return driver.Grant{}, s.fail(ctx, op, err)
		}
	}
}

// passLock gives what a lock that is leaving has to a new one. If the conn is lost, it returns
// errConnGone, and the lock changes when the session has ended.
func (s *Store) passLock(ctx context.Context, h *heldLock, req driver.Request) (driver.Grant, error) {
	c := h.conn
	if err := c.enter(ctx); err != nil {
		return driver.Grant{}, cmp.Or(s.stay(h, err), errConnGone)
	}
	var token uint64
	err := s.perform(ctx, c, func() (err error) {
		token, err = c.token()
		switch {
		case err != nil && s.verify(c) != nil: // it is lost
		case ctx.Err() != nil: // nobody would know of the new owner any more
			s.cut(c, h)
			return context.Cause(ctx)
		case err != nil: // the server has no token, but the lock is held as before
			return cmp.Or(s.stay(h, err), errConnGone)
		case s.replace(h, req, token):
			return nil
		}
		return errConnGone
	})
	if err != nil { // the job may still run
		return driver.Grant{}, err
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL}, nil
}

// replace puts a heldLock of the next owner in the place of one that is leaving. It is
// false if the conn was lost meanwhile.
func (s *Store) replace(h *heldLock, req driver.Request, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.conn.dead.Load() || s.locks[h.name] != h {
		return false
	}
	next := &heldLock{
		name: h.name, owner: req.Owner, key: h.key,
		phase: held, token: token, conn: h.conn, holder: req.Holder, lost: req.Lost,
	}
	s.extendLocked(next, req.TTL)
	s.locks[h.name] = next
	h.wakeLocked()
	return true
}
