package sqlsession

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// mainConn returns the conn that holds all locks of Session. If it was lost, one caller
// opens another one for all.
func (s *Store) mainConn(ctx context.Context) (*conn, error) {
	if c := s.currentConn(); c != nil {
		return c, nil
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c := s.currentConn(); c != nil {
		return c, nil
	}
	raw, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.newMain(ctx, raw)
	if err == nil {
		err = s.adopt(c, nil)
	}
	if err != nil {
		sqldb.Discard(raw)
		return nil, err
	}
	s.mu.Lock()
	s.main = c
	s.mu.Unlock()
	return c, nil
}

// enterMain returns the main conn after it has entered it.
func (s *Store) enterMain(ctx context.Context) (*conn, error) {
	c, err := s.mainConn(ctx)
	if err == nil {
		err = c.enter(ctx)
	}
	return c, err
}

// onMain runs job on the main conn as detached does.
func (s *Store) onMain(ctx context.Context, job func(*conn) error) error {
	c, err := s.enterMain(ctx)
	if err != nil {
		return err
	}
	return s.detached(ctx, c, func() error { return job(c) })
}

func (s *Store) currentConn() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main == nil || s.main.dead.Load() {
		return nil
	}
	return s.main
}

// newMain prepares a connection for holding locks.
func (s *Store) newMain(ctx context.Context, raw *sql.Conn) (*conn, error) {
	c := newConn(raw)
	if err := sqldb.ExecAll(ctx, raw, s.server.settings...); err != nil {
		return nil, err
	}
	err := raw.QueryRowContext(ctx, s.server.identity).Scan(&c.id)
	if err == nil && c.id == readOnlySession {
		err = errBecameReadOnly
	}
	if err == nil {
		err = s.dialect.setFingerprint(ctx, c)
	}
	for id, text := range s.server.texts {
		if err == nil && text != "" {
			c.stmts[id], err = raw.PrepareContext(ctx, text)
		}
	}
	if err == nil {
		c.shift, err = s.dialect.startTokens(ctx, s, raw)
	}
	return c, err
}

// acquireSession asks for a lock of the server's own kind.
func (s *Store) acquireSession(ctx context.Context, h *heldLock) error {
	c, err := s.enterMain(ctx)
	if err == nil {
		if err = s.adopt(c, h); err != nil {
			c.leave()
		}
	}
	if err != nil {
		s.remove(h)
		return err
	}
	return s.detached(ctx, c, func() error {
		token, err := s.acquireToken(c, h)
		if err == nil && token != 0 {
			switch {
			case ctx.Err() != nil: // the caller has left, and its Release may have come before
				err = context.Cause(ctx)
			case s.hold(h, token):
				return nil
			default: // the attempt ends with the session
				return errConnGone
			}
		}
		switch {
		case err == nil:
			err = &driver.HeldError{Name: h.name}
		case errors.Is(err, driver.ErrHeld):
		case errors.Is(err, errBecameReadOnly): // another connection may lead to another server
			s.lose(c)
		case token == 0 && s.sharesName(c, h): // unlocking might end the share of another owner
			s.lose(c)
			return err
		case s.unlockSession(c, h) != nil: // what it may have acquired ends with the session
			s.lose(c)
			return err
		}
		s.remove(h)
		return err
	})
}

// sharesName reports whether the conn holds, acquires or releases another share of the lock.
func (s *Store) sharesName(c *conn, h *heldLock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.locks[h.name], func(other *heldLock) bool { return other != h && other.conn == c })
}

// uncancelled is the context of the statements that have to be fast: with a context that can end,
// drivers and database/sql switch between goroutines, which costs a third of the time. If the
// server does not answer, the monitor counts the conn as lost all the same.
var uncancelled = context.Background()

// acquireToken asks for a lock and returns its token, zero if another session has the lock.
func (s *Store) acquireToken(c *conn, h *heldLock) (uint64, error) {
	var answer sql.NullInt64
	id, keys := stmtAcquire, []any{h.key.server}
	if h.shared {
		id, keys = stmtAcquireShared, append(keys, h.key.place)
	}
	err := c.call(func(context.Context) error {
		if h.shared {
			if err := c.announceShared(uncancelled); err != nil {
				return err
			}
		}
		return c.stmts[id].QueryRowContext(uncancelled, keys...).Scan(&answer)
	})
	switch {
	case err != nil:
		return 0, err
	case answer.Int64 == answerShared:
		return 0, &driver.HeldError{Name: h.name, Mode: driver.Mode{Shared: true}}
	case answer.Int64 == answerReadOnly:
		return 0, errBecameReadOnly
	case answer.Int64 == 0:
		return 0, nil
	}
	return uint64(answer.Int64) + c.shift, nil
}

// unlockSession releases a lock. The monitor finds out whether the session is still the one
// that held it.
func (s *Store) unlockSession(c *conn, h *heldLock) error {
	id := stmtRelease
	if h.shared {
		id = stmtReleaseShared
	}
	return c.call(func(context.Context) error {
		_, err := c.stmts[id].ExecContext(uncancelled, h.key.server)
		return err
	})
}
