package sqlsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

const (
	// rowPatience is how long an attempt begins again because somebody was faster,
	// and waits for those to go who cannot stay.
	rowPatience = 2 * time.Second
	// rowPause is about how long it takes them.
	rowPause = 2 * time.Millisecond
)

// Why a row was not locked.
var (
	errRowLocked = errors.New("somebody else has locked the row")
	errRowNew    = errors.New("there was no such row, and there is now")
	errFaster    = errors.New("somebody else was faster")
)

// takeRow holds a row by a transaction on a connection of its own.
func (s *Store) takeRow(ctx context.Context, h *heldLock) error {
	c, token, err := s.openRow(ctx, h)
	switch {
	case err != nil:
		s.forget(h)
	case !s.hold(h, c, token): // it ends with the session
		err = errConnGone
	}
	return err
}

func (s *Store) openRow(ctx context.Context, h *heldLock) (*conn, uint64, error) {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, 0, err
	}
	c := newConn(conn)
	token, err := s.lockRow(ctx, c, h)
	if err == nil {
		c.proven.Store(time.Now().UnixNano())
		err = s.adopt(c, h)
	}
	switch {
	case err == nil:
		return c, token, nil
	case errors.Is(err, driver.ErrHeld) && s.restore(ctx, c) == nil:
		c.giveBack()
	default:
		c.discard() // and whatever is locked
	}
	return nil, 0, err
}

// lockRow makes the attempt. The token is written and committed before the row
// is locked for good, since what the lock guards may outlive the server, and
// then the token must have.
func (s *Store) lockRow(ctx context.Context, c *conn, h *heldLock) (uint64, error) {
	if err := execAll(ctx, c.raw, s.server.settings...); err != nil {
		return 0, err
	}
	awaited := false
	for start := time.Now(); time.Since(start) < rowPatience; {
		token, err := s.dialect.claimRow(ctx, c.raw, s.server, h)
		if err == nil {
			err = s.pin(ctx, c, h, token)
		}
		if err == nil {
			return token, nil
		}
		switch {
		case errors.Is(err, errRowNew):
		case errors.Is(err, errRowLocked):
			held, old, err := s.rowHolder(ctx, c, h)
			switch {
			case err != nil:
				return 0, err
			case awaited || !old:
				return 0, held
			}
			// Perhaps nobody has it, and it is being swept.
			if err := s.awaitJanitor(ctx, c); err != nil {
				return 0, err
			}
			awaited = true
		case s.dialect.failureOf(err) == retryFailure, errors.Is(err, errFaster):
			if err := backoff.Sleep(ctx, backoff.Jitter(rowPause)); err != nil {
				return 0, err
			}
		default:
			return 0, err
		}
	}
	return 0, &driver.HeldError{Name: h.name}
}

// pin locks the row for good, unless somebody else has raised the token since.
// Whoever is in the way of the one who raised it last does not stay: it finds
// that it is not the last. So of those who come together one gets the lock, also
// where the others are slow to leave.
func (s *Store) pin(ctx context.Context, c *conn, h *heldLock, token uint64) error {
	for start := time.Now(); ; {
		err := s.dialect.pinRow(ctx, c, s.server, h.key, token)
		if err == nil {
			return nil
		}
		if rollback := execAll(ctx, c.raw, "ROLLBACK"); rollback != nil {
			return rollback
		}
		if !errors.Is(err, errRowLocked) || time.Since(start) > rowPatience {
			return err
		}
		if held, _, err := s.rowHolder(ctx, c, h); err != nil {
			return err
		} else if held.Token != token {
			return errFaster
		}
		if err := backoff.Sleep(ctx, backoff.Jitter(rowPause)); err != nil {
			return err
		}
	}
}

// rowHolder says who has a row that is locked, as far as it can be told, and
// whether the row is old enough to be swept, or gone. What is there may be of one
// who wants it, like the one who asks, or has lost it.
func (s *Store) rowHolder(ctx context.Context, c *conn, h *heldLock) (held *driver.HeldError, old bool, err error) {
	var token uint64
	var holder []byte
	err = c.raw.QueryRowContext(ctx, s.server.readRow, h.key.row).Scan(&token, &holder, &old)
	if errors.Is(err, sql.ErrNoRows) {
		old, err = true, nil // it was swept just now
	}
	if err != nil {
		return nil, false, err
	}
	return &driver.HeldError{Name: h.name, Token: token, Holder: driver.DecodeHolder(string(holder))}, old, nil
}

// restore undoes what was set on a connection.
func (s *Store) restore(ctx context.Context, c *conn) error {
	return execAll(ctx, c.raw, s.server.restore...)
}

// unlockRow ends the transaction that held the row, and gives the connection back.
func (s *Store) unlockRow(c *conn, key lockKey) bool {
	err := c.call(func(ctx context.Context) error {
		// The mark first: whoever has the row finds the mark free.
		if s.server.unmark != "" {
			if _, err := c.raw.ExecContext(ctx, fmt.Sprintf(s.server.unmark, key.server, c.guard)); err != nil {
				return err
			}
		}
		return execAll(ctx, c.raw, "ROLLBACK")
	})
	if err != nil {
		return false
	}
	s.drop(c)
	if c.call(func(ctx context.Context) error { return s.restore(ctx, c) }) != nil {
		c.discard()
		return true
	}
	c.giveBack()
	return true
}
