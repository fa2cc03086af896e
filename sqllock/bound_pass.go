package sqllock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Pass implements driver.Passer for [Session]: the connection keeps the lock, and only
// a new token is drawn. [ForUpdate] cannot, because a token that is written in the
// transaction which holds the row would be lost with it.
func (s *BoundStore) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	const op = "pass"
	if s.scheme != Session {
		return driver.Grant{}, fmt.Errorf("%w: scheme %v cannot pass locks on", driver.ErrUnsupported, s.scheme)
	}
	if err := s.begin(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for {
		b, changed, err := s.part(grant)
		if err != nil {
			return driver.Grant{}, err
		}
		if changed == nil {
			next, err := s.passBond(ctx, b, req)
			return next, s.fail(ctx, op, err)
		}
		if err := s.wait(ctx, changed); err != nil {
			return driver.Grant{}, s.fail(ctx, op, err)
		}
	}
}

// passBond gives what a bond that is leaving has to a new one.
func (s *BoundStore) passBond(ctx context.Context, b *bond, req driver.Request) (driver.Grant, error) {
	l := b.link
	if err := l.enter(ctx); err != nil {
		return driver.Grant{}, s.stay(b, err)
	}
	var token uint64
	err := s.perform(ctx, l, func() (err error) {
		token, err = l.token()
		switch {
		case err != nil && s.verify(l) != nil: // it is lost
		case ctx.Err() != nil: // nobody would know of the new owner any more
			if err := s.cut(l, b); err != nil {
				return err
			}
			return context.Cause(ctx)
		case err != nil: // the server has no token, but the lock is held as before
			return s.stay(b, err)
		case s.replace(b, req, token):
			return nil
		}
		s.lose(l)
		s.settle(b)
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, errLinkGone)
	})
	if err != nil { // the job may still run
		return driver.Grant{}, err
	}
	return granted(&req, token), nil
}

// replace puts a bond of the next owner in the place of one that is leaving. It is
// false if the link was lost meanwhile.
func (s *BoundStore) replace(b *bond, req driver.Request, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.link.dead.Load() || s.bonds[b.name] != b {
		return false
	}
	next := &bond{
		name: b.name, owner: req.Owner, key: b.key,
		phase: held, token: token, link: b.link, holder: req.Holder, lost: req.Lost,
	}
	s.extendLocked(next, req.TTL)
	s.bonds[b.name] = next
	b.wakeLocked()
	return true
}
