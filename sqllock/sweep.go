package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// sweepRows is how many rows are looked at, and at most deleted, at once.
const sweepRows = 500

// sweep deletes what is not needed any more, now and then until the store is
// closed. What fails is tried again at the next interval.
func (s *Store) sweep() {
	ticker := time.NewTicker(sqldb.JanitorInterval)
	defer ticker.Stop()
	for {
		_ = s.sweepOnce()
		select {
		case <-s.closing:
			return
		case <-ticker.C:
		}
	}
}

// sweepOnce sweeps everything, unless another store has done it within the
// interval.
func (s *Store) sweepOnce() error {
	claimed, err := s.claimSweep()
	for after, more := "", claimed; more && err == nil; {
		after, more, err = s.sweepPage(after)
	}
	return err
}

// claimSweep begins a sweep if one is due, with the queue.
func (s *Store) claimSweep() (claimed bool, err error) {
	ctx, cancel := s.background()
	defer cancel()
	const interval = int64(sqldb.JanitorInterval / time.Millisecond)
	err = s.read(ctx, "sweep", func() error {
		return s.each().one(ctx, sweepDue, []any{interval}, &claimed)
	})
	if err == nil && claimed {
		claimed, err = s.changeAny(ctx, "sweep", claimSweep, interval)
	}
	if err == nil && claimed {
		_, err = s.changeAny(ctx, "sweep", sweepQueue, sweepRows)
	}
	return claimed, err
}

// sweepPage sweeps the page of names that begins after the one given. It reads
// first, so that a page with nothing to sweep keeps no writer waiting.
func (s *Store) sweepPage(after string) (last string, more bool, err error) {
	ctx, cancel := s.background()
	defer cancel()
	var old []string
	var highest int64
	rows := 0
	const age = int64(sqldb.JanitorAge / time.Millisecond)
	err = s.read(ctx, "sweep", func() error {
		old, highest, rows = nil, 0, 0
		return s.each().each(ctx, sweepPage, []any{after, sweepRows, age}, func(scan func(...any) error) error {
			var unused bool
			var token int64
			rows++
			err := scan(&last, &token, &unused)
			if unused {
				old, highest = append(old, last), max(highest, token)
			}
			return err
		})
	})
	if err != nil || len(old) == 0 {
		return last, rows == sweepRows, err
	}
	err = s.write(ctx, "sweep", func() error {
		return s.inTx(ctx, func(run runner) error { return deleteRows(ctx, run, old, age, highest) })
	})
	return last, rows == sweepRows, err
}

// deleteRows deletes those rows that are old still and have no higher token. It
// raises the floor first, and so makes sure that a lock that comes back gets a
// higher token than it ever had: new rows start above the floor, and whoever
// inserts one meanwhile either was before, or waits and sees the new floor.
func deleteRows(ctx context.Context, run runner, names []string, age, highest int64) error {
	if _, err := run.exec(ctx, raiseFloor, highest); err != nil {
		return err
	}
	var raised int64
	if err := run.one(ctx, floor, nil, &raised); err != nil {
		return err
	}
	if raised < highest {
		return fmt.Errorf("the floor is %d after it was raised to %d", raised, highest)
	}
	_, err := run.exec(ctx, sweepLocks, encode(names), age, highest)
	return err
}
