package sqllock

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
func (s *BoundStore) takeRow(ctx context.Context, b *bond) error {
	l, token, err := s.openRow(ctx, b)
	if err == nil && !s.hold(b, l, token) {
		err = errLinkGone
	}
	if err != nil {
		s.forget(b)
	}
	return err
}

func (s *BoundStore) openRow(ctx context.Context, b *bond) (*link, uint64, error) {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.seats <- struct{}{}:
		defer func() { <-s.seats }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, 0, err
	}
	l := newLink(conn)
	token, err := s.lockRow(ctx, l, b)
	if err == nil {
		l.proven.Store(time.Now().UnixNano())
		err = s.adopt(l)
	}
	switch {
	case err == nil:
		return l, token, nil
	case errors.Is(err, driver.ErrHeld) && s.restore(ctx, l) == nil:
		l.giveBack()
	default:
		l.discard() // and whatever is locked
	}
	return nil, 0, err
}

// lockRow makes the attempt. The token is written and committed before the row
// is locked for good, since what the lock guards may outlive the server, and
// then the token must have.
func (s *BoundStore) lockRow(ctx context.Context, l *link, b *bond) (uint64, error) {
	if err := execAll(ctx, l.conn, s.server.settings); err != nil {
		return 0, err
	}
	awaited := false
	for start := time.Now(); time.Since(start) < rowPatience; {
		token, err := s.dialect.claimRow(ctx, l.conn, s.server, b)
		if err == nil {
			err = s.pin(ctx, l, b, token)
		}
		if err == nil {
			return token, nil
		}
		switch failure := s.dialect.boundFailure(err); {
		case errors.Is(err, errRowNew):
		case errors.Is(err, errRowLocked):
			held, old, err := s.rowHolder(ctx, l, b)
			if err != nil || awaited || !old {
				return 0, orHeld(err, held)
			}
			// Perhaps nobody has it, and it is being swept.
			if err := s.awaitSweep(ctx, l); err != nil {
				return 0, err
			}
			awaited = true
		case failure == retryFailure, errors.Is(err, errFaster):
			if err := pauseFor(ctx, backoff.Jitter(rowPause)); err != nil {
				return 0, err
			}
		default:
			return 0, err
		}
	}
	return 0, &driver.HeldError{Name: b.name}
}

// pin locks the row for good, unless somebody else has raised the token since.
// Whoever is in the way of the one who raised it last does not stay: it finds
// that it is not the last. So of those who come together one gets the lock, also
// where the others are slow to leave.
func (s *BoundStore) pin(ctx context.Context, l *link, b *bond, token uint64) error {
	for start := time.Now(); ; {
		id, err := s.dialect.pinRow(ctx, l.conn, s.server, b.key, token)
		if err == nil {
			l.id = id
			return nil
		}
		if rollback := execAll(ctx, l.conn, []string{"ROLLBACK"}); rollback != nil {
			return rollback
		}
		if !errors.Is(err, errRowLocked) || time.Since(start) > rowPatience {
			return err
		}
		if held, _, err := s.rowHolder(ctx, l, b); err != nil {
			return err
		} else if held.Token != token {
			return errFaster
		}
		if err := pauseFor(ctx, backoff.Jitter(rowPause)); err != nil {
			return err
		}
	}
}

// pauseFor lets time pass.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rowHolder says who has a row that is locked, as far as it can be told, and
// whether the row is old enough to be swept, or gone. What is there may be of one
// who wants it, like the one who asks, or has lost it.
func (s *BoundStore) rowHolder(ctx context.Context, l *link, b *bond) (held *driver.HeldError, old bool, err error) {
	var token uint64
	var holder []byte
	err = l.conn.QueryRowContext(ctx, s.server.readRow, b.key.row).Scan(&token, &holder, &old)
	if errors.Is(err, sql.ErrNoRows) {
		old, err = true, nil // it was swept just now
	}
	if err != nil {
		return nil, false, err
	}
	return &driver.HeldError{Name: b.name, Token: token, Holder: driver.DecodeHolder(string(holder))}, old, nil
}

// restore undoes what was set on a connection.
func (s *BoundStore) restore(ctx context.Context, l *link) error {
	return execAll(ctx, l.conn, s.server.restore)
}

// untieRow ends the transaction that held the row, and gives the connection back.
func (s *BoundStore) untieRow(l *link, key lockKey) bool {
	err := l.call(func(ctx context.Context) error {
		// The mark first: whoever has the row finds the mark free.
		if s.server.unmark != "" {
			if _, err := l.conn.ExecContext(ctx, fmt.Sprintf(s.server.unmark, key.mark)); err != nil {
				return err
			}
		}
		return execAll(ctx, l.conn, []string{"ROLLBACK"})
	})
	if err != nil {
		return false
	}
	s.drop(l)
	if l.call(func(ctx context.Context) error { return s.restore(ctx, l) }) != nil {
		l.discard()
		return true
	}
	l.giveBack()
	return true
}
