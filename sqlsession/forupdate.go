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
	// rowPatience is how long an attempt starts again after it lost a race, and waits for
	// contenders that are about to leave the row.
	rowPatience = 2 * time.Second
	// rowPause is about how long these contenders take.
	rowPause = 2 * time.Millisecond
)

// Why a row was not locked.
var (
	errRowLocked = errors.New("another transaction has locked the row")
	errRowNew    = errors.New("the row did not exist and was inserted")
	errLostRace  = errors.New("lost the race for the row")
)

// acquireRow holds a row by a transaction on a connection of its own.
func (s *Store) acquireRow(ctx context.Context, h *heldLock) error {
	token, err := s.openRow(ctx, h)
	switch {
	case err != nil:
		s.remove(h)
	case !s.hold(h, token): // it ends with the session
		err = errConnGone
	}
	return err
}

func (s *Store) openRow(ctx context.Context, h *heldLock) (uint64, error) {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	raw, err := s.connection(ctx)
	if err != nil {
		return 0, err
	}
	c := newConn(raw)
	token, err := s.tryRow(ctx, c, h)
	if err == nil {
		c.proven.Store(elapsed(time.Now()))
		err = s.adopt(c, h)
	}
	switch {
	case err == nil:
	case errors.Is(err, driver.ErrHeld) && execAll(ctx, raw, s.server.restore...) == nil:
		c.giveBack()
	default:
		c.discard() // with everything that it has locked
	}
	return token, err
}

// tryRow makes the attempt. It commits the token before it locks the row: what the lock
// guards may outlive the server, so that the token must outlive it, too.
func (s *Store) tryRow(ctx context.Context, c *conn, h *heldLock) (uint64, error) {
	if err := execAll(ctx, c.raw, s.server.settings...); err != nil {
		return 0, err
	}
	awaited := false
	for start := time.Now(); time.Since(start) < rowPatience; {
		token, err := s.dialect.raiseToken(ctx, c.raw, s.server, h)
		if err == nil {
			err = s.lockRow(ctx, c, h, token)
		}
		switch {
		case err == nil:
			return token, nil
		case errors.Is(err, errRowNew):
		case errors.Is(err, errRowLocked):
			held, old, err := s.rowHolder(ctx, c, h)
			switch {
			case err != nil:
				return 0, err
			case awaited || !old:
				return 0, held
			}
			// Perhaps only the janitor has locked it.
			if err := s.awaitJanitor(ctx, c); err != nil {
				return 0, err
			}
			awaited = true
		case s.dialect.isRetryable(err), errors.Is(err, errLostRace):
			if err := backoff.Sleep(ctx, backoff.Jitter(rowPause)); err != nil {
				return 0, err
			}
		default:
			return 0, err
		}
	}
	return 0, &driver.HeldError{Name: h.name}
}

// lockRow locks the row for good, unless another contender has raised the token since. The
// contender that raised it last waits for the others, which find that they are not the last
// and leave. So one of several contenders gets the lock, also if the others leave slowly.
func (s *Store) lockRow(ctx context.Context, c *conn, h *heldLock, token uint64) error {
	for start := time.Now(); ; {
		err := s.dialect.lockRow(ctx, c, s.server, h.key, token)
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
			return errLostRace
		}
		if err := backoff.Sleep(ctx, backoff.Jitter(rowPause)); err != nil {
			return err
		}
	}
}

// rowHolder returns what a row says about its holder. It may be a contender that has not
// locked the row, or a holder that has lost it. old reports whether the janitor may delete
// the row, or has deleted it.
func (s *Store) rowHolder(ctx context.Context, c *conn, h *heldLock) (held *driver.HeldError, old bool, err error) {
	var token uint64
	var holder []byte
	err = c.raw.QueryRowContext(ctx, s.server.readRow, h.key.row).Scan(&token, &holder, &old)
	if errors.Is(err, sql.ErrNoRows) {
		old, err = true, nil
	}
	return &driver.HeldError{Name: h.name, Token: token, Holder: driver.DecodeHolder(string(holder))}, old, err
}

// unlockRow ends the transaction that holds the row, and gives the connection back.
func (s *Store) unlockRow(c *conn, key lockKey) bool {
	err := c.call(func(ctx context.Context) error {
		// First the server lock: the next holder of the row finds it free.
		if s.server.unlockKey != "" {
			if err := execAll(ctx, c.raw, fmt.Sprintf(s.server.unlockKey, key.server, c.guard)); err != nil {
				return err
			}
		}
		return execAll(ctx, c.raw, "ROLLBACK")
	})
	if err != nil {
		return false
	}
	s.drop(c)
	if c.call(func(ctx context.Context) error { return execAll(ctx, c.raw, s.server.restore...) }) != nil {
		c.discard()
	} else {
		c.giveBack()
	}
	return true
}
