package sqlsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Pass implements driver.Passer for [Session]: the connection keeps the lock and draws a new
// token. [ForUpdate] cannot, because a token that is written in the transaction which holds
// the row would be lost with it.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	const op = "pass"
	if s.scheme != Session {
		return driver.Grant{}, fmt.Errorf("%w: scheme %v cannot hand over locks", driver.ErrUnsupported, s.scheme)
	}
	if err := s.startCall(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for {
		h, mine, changed := s.startRelease(grant)
		if h == nil {
			return driver.Grant{}, driver.ErrNotHeld
		}
		if mine {
			next, err := s.handOver(ctx, h, req)
			if !errors.Is(err, errConnGone) {
				return next, s.explain(ctx, op, err)
			}
		}
		if err := wait(ctx, changed); err != nil {
			return driver.Grant{}, s.explain(ctx, op, err)
		}
	}
}

// handOver gives a lock in phase releasing to the owner of req. If the conn is lost, the
// error is errConnGone, and the lock changes when the session has ended.
func (s *Store) handOver(ctx context.Context, h *heldLock, req driver.Request) (driver.Grant, error) {
	c := h.conn
	if err := c.enter(ctx); err != nil {
		return driver.Grant{}, cmp.Or(s.keep(h, err), errConnGone)
	}
	var token uint64
	err := s.detached(ctx, c, func() (err error) {
		token, err = c.token(c.draw)
		switch {
		case err != nil && s.verify(c) != nil: // it is lost
		case ctx.Err() != nil: // the caller has left, and would not know of the new owner
			s.unlock(c, h)
			return context.Cause(ctx)
		case err != nil: // the server has no token, but the lock is held as before
			return cmp.Or(s.keep(h, err), errConnGone)
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

// replace puts a lock of the next owner in the place of one in phase releasing. It reports
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
