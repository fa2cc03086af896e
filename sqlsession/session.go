package sqlsession

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// sharedConn is the conn that all locks of Session are on. It is opened again
// when it was lost, by one caller for all.
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
		newConn(raw).discard()
		return nil, err
	}
	s.mu.Lock()
	s.shared = c
	s.mu.Unlock()
	return c, nil
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
	if err := execAll(ctx, raw, s.server.settings...); err != nil {
		return nil, err
	}
	err := raw.QueryRowContext(ctx, s.server.identity).Scan(&c.id)
	if err == nil && c.id == readOnlySession {
		err = sqldb.ErrReadOnly
	}
	if err != nil {
		return nil, err
	}
	if err := s.dialect.guard(ctx, c); err != nil {
		return nil, err
	}
	if c.acquire, err = raw.PrepareContext(ctx, s.server.acquire); err != nil {
		return nil, err
	}
	if c.draw, err = raw.PrepareContext(ctx, s.server.draw); err != nil {
		return nil, err
	}
	if c.release, err = raw.PrepareContext(ctx, s.server.release); err != nil {
		return nil, err
	}
	if c.look, err = raw.PrepareContext(ctx, s.server.look); err != nil {
		return nil, err
	}
	c.shift, err = s.dialect.startTokens(ctx, raw, s.server)
	return c, err
}

// takeSession asks for a lock of the server's own kind.
func (s *Store) takeSession(ctx context.Context, h *heldLock) error {
	c, err := s.sharedConn(ctx)
	if err == nil && !s.bind(h, c) {
		err = errConnGone
	}
	if err == nil {
		err = c.enter(ctx)
	}
	if err != nil {
		s.forget(h)
		return err
	}
	return s.perform(ctx, c, func() error {
		token, err := c.take(h.key.server)
		undone := true
		switch {
		case errors.Is(err, sqldb.ErrReadOnly): // another connection may lead to another server
			s.lose(c)
		case err != nil:
			undone = s.undo(c, h.key)
		case token == 0:
			err = &driver.HeldError{Name: h.name}
		case ctx.Err() != nil: // nobody waits for it, or may come to release it
			undone = s.undo(c, h.key)
			err = context.Cause(ctx)
		case !s.hold(h, c, token):
			undone, err = false, errConnGone
		default:
			return nil
		}
		if undone { // otherwise it ends with the session
			s.forget(h)
		}
		return err
	})
}

// uncancelled is the context of the two statements that have to be fast. With one
// that can end, drivers and database/sql switch between goroutines several times
// for each statement, which costs a third of its time. If the server does not
// answer the conn counts as lost all the same, and the statement, whose answer
// nobody waits for any more, is left to the time limits of the network.
var uncancelled = context.Background()

// take makes the attempt; a token of zero is a refusal.
func (c *conn) take(mark any) (token uint64, err error) {
	return c.drawn(func() *sql.Row { return c.acquire.QueryRowContext(uncancelled, mark) })
}

// token draws a token for a lock that the conn has already.
func (c *conn) token() (token uint64, err error) {
	return c.drawn(func() *sql.Row { return c.draw.QueryRowContext(uncancelled) })
}

// drawn sends a statement that answers with a token.
func (c *conn) drawn(send func() *sql.Row) (token uint64, err error) {
	var answer sql.NullInt64
	err = c.call(func(context.Context) error { return send().Scan(&answer) })
	switch {
	case err != nil:
		return 0, err
	case answer.Int64 == readOnlyToken:
		return 0, sqldb.ErrReadOnly
	case answer.Int64 == 0:
		return 0, nil
	}
	return uint64(answer.Int64) + c.shift, nil
}

// undo gives up what an attempt that failed may have taken. If that fails, the conn is lost,
// and what it took ends with its session.
func (s *Store) undo(c *conn, key lockKey) bool {
	undone := s.unlockSession(c, key)
	if !undone {
		s.lose(c)
	}
	return undone
}

// unlockSession gives up a lock. Whether the session is the one that had it is
// for the monitor to find out.
func (s *Store) unlockSession(c *conn, key lockKey) bool {
	err := c.call(func(context.Context) error {
		_, err := c.release.ExecContext(uncancelled, key.server)
		return err
	})
	return err == nil
}
