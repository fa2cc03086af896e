package sqlsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
)

const (
	// rowRetryLimit is how long an attempt starts again after it lost a race, and waits for
	// contenders that are about to leave the row.
	rowRetryLimit = 2 * time.Second
	// rowRetryPause is about how long these contenders take.
	rowRetryPause = 2 * time.Millisecond
)

// Why a row was not locked.
var (
	errRowLocked = errors.New("the lock has no holder, but another transaction keeps its row locked")
	errRowNew    = errors.New("the row did not exist and was inserted")
	errLostRace  = errors.New("lost the race for the row")
)

// acquireRow holds a row by a transaction on a connection of its own.
func (s *Store) acquireRow(ctx context.Context, h *heldLock) error {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		s.remove(h)
		return context.Cause(ctx)
	}
	raw, err := s.connection(ctx)
	if err != nil {
		s.remove(h)
		return err
	}
	c := newConn(raw)
	s.mu.Lock()
	h.conn = c
	s.mu.Unlock()
	token, err := s.tryRow(ctx, c, h)
	if err == nil {
		c.answered.Store(elapsed(time.Now()))
		err = s.adopt(c, h)
	}
	refused := errors.Is(err, driver.ErrHeld) || errors.Is(err, errRowLocked)
	switch {
	case err == nil:
		if !s.hold(h, token) { // it ends with the session
			err = errConnGone
		}
		return err
	case refused && s.unlockKey(ctx, c, h.key) == nil && sqldb.ExecAll(ctx, raw, s.server.restore...) == nil:
		c.giveBack()
	case c.id == "": // it has locked nothing
		c.discard()
	default: // the server may not notice that the connection is gone
		s.lose(c)
		return err
	}
	s.remove(h)
	return err
}

// tryRow makes the attempt, and returns the token. It commits the token before
// it locks the row: the token must outlive a crash of the server, as what the lock guards does.
func (s *Store) tryRow(ctx context.Context, c *conn, h *heldLock) (uint64, error) {
	if err := sqldb.ExecAll(ctx, c.raw, s.server.settings...); err != nil {
		return 0, err
	}
	var token uint64
	err := errRowNew
	for start := time.Now(); time.Since(start) < rowRetryLimit; {
		if token, err = s.dialect.raiseToken(ctx, s, c, h); err == nil {
			err = s.lockRow(ctx, c, h, token)
		}
		switch {
		case err == nil:
			return token, nil
		case errors.Is(err, errRowNew):
			continue
		case errors.Is(err, errRowLocked):
			last, held, err := s.readRow(ctx, c, h)
			switch {
			case err != nil:
				return 0, err
			case held:
				return 0, last
			} // otherwise by a contender, the janitor or another program, perhaps for a moment
		case !errors.Is(err, errLostRace):
			if failure := s.facts.Classify(err); !failure.Retry || failure.Ended {
				return 0, err
			}
		}
		if err := backoff.Sleep(ctx, backoff.Jitter(rowRetryPause)); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, errRowLocked) {
		return 0, err
	}
	return 0, &driver.HeldError{Name: h.name} // by one of the contenders that won the races
}

// lockRow locks the row for good, unless another contender has raised the token since. The
// contender that raised it last waits until the others have noticed and left, so that just one
// gets the lock.
func (s *Store) lockRow(ctx context.Context, c *conn, h *heldLock, token uint64) error {
	for start := time.Now(); ; {
		err := s.dialect.lockRow(ctx, s, c, h.key, token)
		if err == nil {
			return nil
		}
		if rollback := sqldb.ExecAll(ctx, c.raw, "ROLLBACK"); rollback != nil {
			return rollback
		}
		if !errors.Is(err, errRowLocked) || time.Since(start) > rowRetryLimit {
			return err
		}
		if last, _, err := s.readRow(ctx, c, h); err != nil {
			return err
		} else if last.Token != token {
			return errLostRace
		}
		if err := backoff.Sleep(ctx, backoff.Jitter(rowRetryPause)); err != nil {
			return err
		}
	}
}

// readRow returns the process that raised the token of a row last. held reports whether the
// server lock is held: otherwise that process is a contender, or a holder of the past.
func (s *Store) readRow(ctx context.Context, c *conn, h *heldLock) (last *driver.HeldError, held bool, err error) {
	last = &driver.HeldError{Name: h.name}
	var holder []byte
	q := &s.server.readRow
	err = c.raw.QueryRowContext(ctx, q.Text, q.Arrange(h.key.row, h.key.server)...).Scan(&last.Token, &holder, &held)
	if errors.Is(err, sql.ErrNoRows) { // the janitor has deleted it
		err = nil
	}
	last.Holder = driver.DecodeHolder(string(holder))
	return last, held, err
}

// unlockRow ends the transaction that holds the row, and gives the connection back.
func (s *Store) unlockRow(c *conn, h *heldLock) error {
	err := c.call(func(ctx context.Context) error {
		// First the server lock: the next holder of the row finds it free.
		if err := s.unlockKey(ctx, c, h.key); err != nil {
			return err
		}
		return sqldb.ExecAll(ctx, c.raw, "ROLLBACK")
	})
	if err != nil {
		return err
	}
	s.disown(c)
	if c.call(func(ctx context.Context) error { return sqldb.ExecAll(ctx, c.raw, s.server.restore...) }) != nil {
		c.discard()
	} else {
		c.giveBack()
	}
	return nil
}

// unlockKey gives up the server lock and the fingerprint, where the rollback does not.
func (s *Store) unlockKey(ctx context.Context, c *conn, key lockKey) error {
	if s.server.unlockKey == "" {
		return nil
	}
	return sqldb.ExecAll(ctx, c.raw, fmt.Sprintf(s.server.unlockKey, key.server, c.fingerprint))
}
