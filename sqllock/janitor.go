package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// janitorRows is how many rows the janitor reads, and at most deletes, at once.
const janitorRows = 500

// clean deletes all rows that are not needed, unless another store has done it within the
// interval.
func (s *Store) clean() error {
	claimed, err := s.claimClean()
	for after, more := "", claimed; more && err == nil; {
		after, more, err = s.cleanPage(after)
	}
	return err
}

// claimClean reports whether the janitor has to run now. If so, it deletes old places.
func (s *Store) claimClean() (claimed bool, err error) {
	ctx, cancel := s.background()
	defer cancel()
	const interval = int64(sqldb.JanitorInterval / time.Millisecond)
	err = s.read(ctx, "clean", func() error {
		return s.run().One(ctx, statement.JanitorDue, []any{interval}, &claimed)
	})
	if err == nil && claimed {
		claimed, err = s.change(ctx, "clean", &batch.Job{}, statement.JanitorClaim, interval)
	}
	if err == nil && claimed {
		_, err = s.change(ctx, "clean", &batch.Job{}, statement.DeletePlaces, janitorRows)
	}
	return claimed, err
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
		err = s.inSlot(ctx, s.writing, "clean", func() error {
			return s.inTx(ctx, func(run statement.Runner) error { return deleteRows(ctx, run, page.Old, age, page.Highest) })
		})
	}
	return page.Last, page.Rows == janitorRows, err
}

// deleteRows deletes the rows that are old still and have no higher token. It
// raises the floor first, so that a lock that comes back gets a higher token than it ever
// had: new rows start above the floor, and a transaction that inserts one meanwhile either
// was before, or waits and sees the new floor.
func deleteRows(ctx context.Context, run statement.Runner, names []string, age, highest int64) error {
	if _, err := run.Exec(ctx, statement.RaiseFloor, highest); err != nil {
		return err
	}
	var raised int64
	if err := run.One(ctx, statement.Floor, nil, &raised); err != nil {
		return err
	}
	if raised < highest {
		return fmt.Errorf("the floor is %d after it was raised to %d", raised, highest)
	}
	_, err := run.Exec(ctx, statement.DeleteLocks, sqldb.JSON(names), age, highest)
	return err
}
