package sqlsession

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// sharedConn returns the conn that holds all locks of Session. If it was lost, one caller
// opens another one for all.
func (s *Store) sharedConn(ctx context.Context) (*conn, error) {
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
	c, err := s.newShared(ctx, raw)
	if err == nil {
		err = s.adopt(c, nil)
	}
	if err != nil {
		sqldb.Discard(raw)
		return nil, err
	}
	s.mu.Lock()
	s.shared = c
	s.mu.Unlock()
	return c, nil
}

// enterShared returns the shared conn after it has entered it.
func (s *Store) enterShared(ctx context.Context) (*conn, error) {
	c, err := s.sharedConn(ctx)
	if err == nil {
		err = c.enter(ctx)
	}
	return c, err
}

func (s *Store) currentConn() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil || s.shared.dead.Load() {
		return nil
	}
	return s.shared
}

// newShared prepares a connection for holding locks.
func (s *Store) newShared(ctx context.Context, raw *sql.Conn) (*conn, error) {
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
	prepare := func(text string) (stmt *sql.Stmt) {
		if err == nil {
			stmt, err = raw.PrepareContext(ctx, text)
		}
		return stmt
	}
	c.acquire, c.release, c.findFree = prepare(s.server.acquire), prepare(s.server.release), prepare(s.server.findFree)
	if err == nil {
		c.shift, err = s.dialect.startTokens(ctx, raw, s.server)
	}
	return c, err
}

// acquireSession asks for a lock of the server's own kind.
func (s *Store) acquireSession(ctx context.Context, h *heldLock) error {
	c, err := s.enterShared(ctx)
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
		number, err := c.acquireNumber(h.key)
		if err == nil && number != 0 {
			switch {
			case ctx.Err() != nil: // the caller has left, and its Release may have come before
				err = context.Cause(ctx)
			case s.hold(h, number*h.span):
				return nil
			default: // the attempt ends with the session
				return errConnGone
			}
		}
		switch {
		case err == nil:
			err = &driver.HeldError{Name: h.name}
		case errors.Is(err, errBecameReadOnly): // another connection may lead to another server
			s.lose(c)
		case s.unlockSession(c, h.key) != nil: // what it may have acquired ends with the session
			s.lose(c)
			return err
		}
		s.remove(h)
		return err
	})
}

// uncancelled is the context of the two statements that have to be fast. With a context
// that can end, drivers and database/sql switch between goroutines several times for each
// statement, which costs a third of its time. If the server does not answer, the conn counts
// as lost all the same, and the statement is left to the time limits of the network.
var uncancelled = context.Background()

// acquireNumber asks for a lock and returns the number of its tokens, zero if another session
// has the lock.
func (c *conn) acquireNumber(key lockKey) (uint64, error) {
	var answer sql.NullInt64
	err := c.call(func(context.Context) error { return c.acquire.QueryRowContext(uncancelled, key.server).Scan(&answer) })
	switch {
	case err != nil:
		return 0, err
	case answer.Int64 == readOnlyNumber:
		return 0, errBecameReadOnly
	case answer.Int64 == 0:
		return 0, nil
	}
	return uint64(answer.Int64) + c.shift, nil
}

// unlockSession releases a lock. The monitor finds out whether the session is still the one
// that held it.
func (s *Store) unlockSession(c *conn, key lockKey) error {
	return c.call(func(context.Context) error {
		_, err := c.release.ExecContext(uncancelled, key.server)
		return err
	})
}
