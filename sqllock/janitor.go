package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// janitorRows is how many rows the janitor reads, and at most deletes, at once.
const janitorRows = 500

// clean deletes all rows that are not needed, unless another store has done it within the
// interval. A place that another transaction keeps locked keeps no other row.
func (s *Store) clean() error {
	claimed, err := s.claimClean()
	if err != nil || !claimed {
		return err
	}
	for more := true; more && err == nil; {
		more, err = s.cleanPlaces()
	}
	var failed error
	for after, more := "", true; more && failed == nil; {
		after, more, failed = s.cleanPage(after)
	}
	return errors.Join(err, failed)
}

// claimClean reports whether the janitor has to run now.
func (s *Store) claimClean() (claimed bool, err error) {
	ctx, cancel := s.background()
	defer cancel()
	const interval = int64(sqldb.JanitorInterval / time.Millisecond)
	err = s.read(ctx, "clean", func() error {
		return s.run().One(ctx, statement.JanitorDue, []any{interval}, &claimed)
	})
	if err == nil && claimed {
		claimed, err = s.runStatement(ctx, "clean", "", statement.JanitorClaim, interval)
	}
	return claimed, err
}

// cleanPlaces deletes some expired places, and reports whether there were any.
func (s *Store) cleanPlaces() (bool, error) {
	ctx, cancel := s.background()
	defer cancel()
	return s.runStatement(ctx, "clean", "", statement.DeletePlaces, janitorRows)
}

// cleanPage deletes old rows of the page of names that follows after.
func (s *Store) cleanPage(after string) (last string, more bool, err error) {
	ctx, cancel := s.background()
	defer cancel()
	var page sqldb.JanitorPage
	const age = int64(sqldb.JanitorAge / time.Millisecond)
	err = s.read(ctx, "clean", func() error {
		page = sqldb.JanitorPage{}
		return s.run().Each(ctx, statement.JanitorPage, []any{after, janitorRows, age}, page.Add)
	})
	if err == nil && len(page.Old) > 0 {
		err = s.withConn(ctx, s.writing, nil, "clean", func() error {
			return s.inTx(ctx, func(run statement.Runner) error { return deleteRows(ctx, run, page.Old, age, page.Highest) })
		})
	}
	return page.Last, page.Rows == janitorRows, err
}

// deleteRows deletes the rows that are still old and have no higher token. It raises the floor
// first, because new rows begin at the floor. A transaction that inserts a row meanwhile either has
// ended, or waits and reads the new floor.
func deleteRows(ctx context.Context, run statement.Runner, names []string, age, highest int64) error {
	if _, err := run.Exec(ctx, statement.RaiseFloor, highest); err != nil {
		return err
	}
	raised, err := run.ReadFloor(ctx)
	if err != nil {
		return err
	}
	if raised < highest {
		return fmt.Errorf("the floor is %d after it was raised to %d", raised, highest)
	}
	_, err = run.Exec(ctx, statement.DeleteLocks, sqldb.JSON(names), age, highest)
	return err
}
