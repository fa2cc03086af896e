package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Rows of locks that nobody uses any more are deleted.
const (
	sweepAge      = time.Hour        // how long a lock must have been free
	sweepInterval = 10 * time.Minute // between two sweeps, by whichever store
	sweepRows     = 500              // how many rows are looked at, and at most deleted, at once
)

// sweep deletes what is not needed any more, now and then until the store is
// closed. What fails is tried again at the next interval.
func (s *Store) sweep() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		_ = s.sweepOnce(s.ctx)
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweepOnce sweeps everything, unless another store has done it within the
// interval.
func (s *Store) sweepOnce(ctx context.Context) error {
	const interval = int64(sweepInterval / time.Millisecond)
	var due bool
	err := s.read(ctx, "sweep", func() error {
		return s.stmts[sweepDue].QueryRowContext(ctx, interval).Scan(&due)
	})
	if err != nil || !due {
		return err
	}
	claimed, err := s.change(ctx, "sweep", claimSweep, interval)
	if err != nil || !claimed {
		return err
	}
	if _, err := s.change(ctx, "sweep", sweepQueue, sweepRows); err != nil {
		return err
	}
	for after, more := "", true; more && err == nil; {
		after, more, err = s.sweepPage(ctx, after)
	}
	return err
}

// sweepPage sweeps the page of names that begins after the one given. It reads
// first, so that a page with nothing to sweep keeps no writer waiting.
func (s *Store) sweepPage(ctx context.Context, after string) (last string, more bool, err error) {
	var old []string
	rows := 0
	const age = int64(sweepAge / time.Millisecond)
	err = s.read(ctx, "sweep", func() error {
		old, rows = nil, 0
		return each(ctx, s.stmts[sweepPage], []any{after, sweepRows, age}, func(scan func(...any) error) error {
			var unused bool
			rows++
			err := scan(&last, &unused)
			if unused {
				old = append(old, last)
			}
			return err
		})
	})
	if err != nil || len(old) == 0 {
		return last, rows == sweepRows, err
	}
	err = s.write(ctx, "sweep", func() error {
		return s.inTx(ctx, func(tx *sql.Tx) error { return s.deleteRows(ctx, tx, old, age) })
	})
	return last, rows == sweepRows, err
}

// deleteRows deletes those rows that are old still, and makes sure that a lock
// that comes back gets a higher token than it ever had: new rows start above
// the floor.
func (s *Store) deleteRows(ctx context.Context, tx *sql.Tx, names []string, age int64) error {
	rows, err := tx.StmtContext(ctx, s.stmts[sweepLocks]).QueryContext(ctx, encode(names), age)
	if err != nil {
		return err
	}
	defer rows.Close()
	var highest int64
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			return err
		}
		highest = max(highest, token)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	result, err := tx.StmtContext(ctx, s.stmts[raiseFloor]).ExecContext(ctx, highest)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, errors.New("the row of the floor is missing"))
	}
	return nil
}
