package sqlsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. If the connection of the lock has died, Release ends its
// session over another one. It returns nil only when the server has freed the lock.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	const op = "release"
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	defer s.work.Done()
	for {
		h, mine, changed := s.part(grant)
		switch {
		case h == nil && grant.Token == 0:
			if err := s.reach(ctx); err != nil {
				return err
			}
			return driver.ErrNotHeld
		case h == nil:
			return driver.ErrNotHeld
		case mine:
			if err := s.giveUp(ctx, h); err != nil {
				return s.unreleased(h, err)
			}
		}
		if err := s.wait(ctx, changed); err != nil {
			return s.unreleased(h, err)
		}
		if outcome, ended := s.outcome(h); ended {
			return outcome
		}
	}
}

// reach returns an error unless the server answers. A Release with the owner alone undoes an
// attempt that had no answer, and its caller takes ErrNotHeld for the end of the outage.
func (s *Store) reach(ctx context.Context) (err error) {
	if s.scheme == ForUpdate {
		err = s.db.PingContext(ctx)
	} else {
		err = s.reachShared(ctx)
	}
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w: release: the server does not answer: %w", driver.ErrUnreachable, context.Cause(ctx))
	}
	return s.fail(ctx, "release", err)
}

func (s *Store) reachShared(ctx context.Context) error {
	for range takeTries {
		c, err := s.sharedConn(ctx)
		if err != nil {
			return err
		}
		if err := s.probe(ctx, c); !errors.Is(err, driver.ErrNotHeld) { // which says that the conn was lost
			return err
		}
	}
	return errConnGone
}

// unreleased is the error of a Release whose context has ended.
func (s *Store) unreleased(h *heldLock, cause error) error {
	s.mu.Lock()
	c := h.conn
	s.mu.Unlock()
	if c == nil || !c.dead.Load() {
		return fmt.Errorf("%w: release: the server does not answer: %w", driver.ErrUnreachable, cause)
	}
	if last := c.ending.Load(); last != nil {
		cause = fmt.Errorf("%w; the session could not be ended: %w", cause, *last)
	}
	return fmt.Errorf("%w: release: the server frees the lock when it notices that the connection is gone: %w", driver.ErrUnreachable, cause)
}

// outcome returns the outcome of the release of a lock that has ended.
func (s *Store) outcome(h *heldLock) (outcome error, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.outcome, h.ended
}

// part finds the lock of a grant; nil if the grant is not held. If the lock is held, part
// makes it leave, and mine is true: the caller has to give it up. changed is closed at the
// next change of the lock.
func (s *Store) part(grant driver.Grant) (h *heldLock, mine bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.locks[grant.Name]
	if h == nil || h.owner != grant.Owner || grant.Token != 0 && h.token != 0 && grant.Token != h.token {
		return nil, false, nil
	}
	changed = h.changedLocked()
	switch {
	case h.phase != held:
	case !time.Now().Before(h.deadline):
		s.expireLocked(h)
	default:
		h.phase, mine = leaving, true
	}
	return h, mine, changed
}

// giveUp starts to give up a lock that is leaving. If ctx ends before the server is asked,
// the lock is held as before.
func (s *Store) giveUp(ctx context.Context, h *heldLock) error {
	c := h.conn
	if err := c.enter(ctx); err != nil {
		return s.stay(h, err)
	}
	s.start(func() {
		defer c.leave()
		s.cut(c, h)
	})
	return nil
}

// cut gives up a lock that is leaving. The conn must have been entered.
func (s *Store) cut(c *conn, h *heldLock) {
	if s.unlock(c, h) {
		s.settle(h, nil)
	} else {
		s.lose(c)
	}
}

// unlock gives up the server's lock. It is false if that was not there.
func (s *Store) unlock(c *conn, h *heldLock) bool {
	if s.scheme == Session {
		return s.unlockSession(c, h.key)
	}
	return s.unlockRow(c, h.key)
}

// stay keeps a lock that was to leave, because the server was not asked, and returns the
// reason. If the conn is lost, its end is the end of the lock.
func (s *Store) stay(h *heldLock, reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.conn.dead.Load() {
		return nil
	}
	h.phase = held
	h.wakeLocked()
	return reason
}
