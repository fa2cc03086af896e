package sqlsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. If the connection of the lock has died, the store ends its
// session over another one. Release returns nil only when the server has freed the lock.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.startCall(ctx, "release"); err != nil {
		return err
	}
	defer s.work.Done()
	err := s.release(ctx, grant)
	if left := s.leavePlace(ctx, grant.Name, grant.Owner); left != nil && errors.Is(err, driver.ErrNotHeld) {
		return left
	}
	return err
}

func (s *Store) release(ctx context.Context, grant driver.Grant) error {
	for {
		h, mustUnlock, changed := s.startRelease(grant)
		if h == nil {
			if grant.Token == 0 {
				return s.undone(ctx)
			}
			return driver.ErrNotHeld
		}
		var err error
		if mustUnlock {
			err = s.startUnlock(ctx, h)
		}
		if err == nil {
			err = wait(ctx, changed)
		}
		s.mu.Lock()
		ended, outcome, c := h.ended, h.outcome, h.conn
		s.mu.Unlock()
		switch {
		case ended:
			return outcome
		case err != nil:
			return unreleased(c, err)
		}
	}
}

// undone returns the outcome of a Release with the owner alone that finds no lock. Its caller
// takes driver.ErrNotHeld for an answer of the server, so undone asks the server first.
func (s *Store) undone(ctx context.Context) (err error) {
	if s.scheme == ForUpdate {
		err = s.db.PingContext(ctx)
	} else {
		err = s.probeMain(ctx)
	}
	switch {
	case err == nil:
		return driver.ErrNotHeld
	case ctx.Err() != nil:
		return unreleased(nil, context.Cause(ctx))
	}
	return s.explain(ctx, "release", err)
}

func (s *Store) probeMain(ctx context.Context) error {
	for range maxConnTries {
		c, err := s.mainConn(ctx)
		if err != nil {
			return err
		}
		if err := s.probe(ctx, c); !errors.Is(err, driver.ErrNotHeld) { // the conn is not lost
			return err
		}
	}
	return errConnGone
}

// unreleased is the error of a Release whose context has ended. The conn may be nil.
func unreleased(c *conn, cause error) error {
	if c == nil || !c.dead.Load() {
		return fmt.Errorf("%w: release: the server does not answer: %w", driver.ErrUnreachable, cause)
	}
	if last := c.ending.Load(); last != nil {
		cause = fmt.Errorf("%w; the session could not be ended: %w", cause, *last)
	}
	return fmt.Errorf("%w: release: the server frees the lock when it notices that the connection is gone: %w", driver.ErrUnreachable, cause)
}

// startRelease returns the lock of a grant, or nil if the grant is not held. mustUnlock reports
// that the lock was held, so that the caller has to unlock it. changed is closed at the next
// change of the lock.
func (s *Store) startRelease(grant driver.Grant) (h *heldLock, mustUnlock bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.ofLocked(grant.Name, grant.Owner)
	if h == nil || grant.Token != 0 && h.token != 0 && grant.Token != h.token {
		return nil, false, nil
	}
	changed = h.changedLocked()
	switch {
	case h.phase != held:
	case !time.Now().Before(h.deadline):
		s.expireLocked(h)
	default:
		h.phase, mustUnlock = releasing, true
	}
	return h, mustUnlock, changed
}

// startUnlock starts to unlock a lock in phase releasing. If ctx ends before the server is
// asked, the lock is held again.
func (s *Store) startUnlock(ctx context.Context, h *heldLock) error {
	c := h.conn
	if err := c.enter(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.dead.Load() { // the lock ends with the session
			return nil
		}
		h.phase = held
		h.wakeLocked()
		return err
	}
	s.start(func() {
		defer c.leave()
		unlock := s.unlockRow
		if s.scheme == Session {
			unlock = s.unlockSession
		}
		if unlock(c, h) == nil {
			s.endLock(h, nil)
		} else {
			s.lose(c)
		}
	})
	return nil
}
