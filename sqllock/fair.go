package sqllock

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/places"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// The column mode of a place has one of these, or the limit of a semaphore. The column fair says that the
// place counts for fair exclusive requests.
const (
	modeExclusive = "exclusive"
	modeShared    = "shared"
)

func modeText(mode driver.Mode) string {
	switch {
	case mode.Limit > 0:
		return strconv.Itoa(mode.Limit)
	case mode.Shared:
		return modeShared
	}
	return modeExclusive
}

// modeOf is the inverse of modeText.
func modeOf(text string) driver.Mode {
	limit, _ := strconv.Atoi(text)
	return driver.Mode{Shared: text == modeShared, Limit: limit}
}

// modeBefore returns the mode of the places that a request gives way to, or no mode. A permit gives way to
// permits, and a shared request to exclusive ones.
func modeBefore(req *driver.Request) string {
	switch {
	case req.Mode.Shared:
		return modeExclusive
	case req.Fair || req.Mode.Limit > 0:
		return modeText(req.Mode)
	}
	return "-" // no empty text: MariaDB may take it for NULL
}

// keepsPlace reports whether a request that was refused keeps a place in the queue: if it is fair,
// or is an exclusive request that shared holders refused.
func keepsPlace(req *driver.Request, refusal error) bool {
	held, ok := errors.AsType[*driver.HeldError](refusal)
	return ok && req.Queue && (req.Fair || held.Mode.Shared)
}

// afterRefusal takes or keeps a place for a caller that was refused, if it queues.
func (s *Store) afterRefusal(ctx context.Context, req *driver.Request, refusal error) error {
	if !keepsPlace(req, refusal) {
		return refusal
	}
	place := req.Owner.Hex()
	switch kept, err := s.keepPlaces(ctx, place); {
	case err != nil:
		return err
	case kept:
		return refusal
	}
	err := s.runJob(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, InTx: s.dialect.prefersTx, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(ctx, run, req)
	}})
	s.places.Add(req.Name, place, driver.PlaceTTL(req.TTL), err) // so that a place is deleted when the lock is granted
	return cmp.Or(err, refusal)
}

// takePlace takes or keeps a place. Places that expired are deleted first: a waiter that
// comes back too late begins at the end of the queue.
func takePlace(ctx context.Context, run statement.Runner, req *driver.Request) error {
	if _, err := run.Exec(ctx, statement.Prune, req.Name); err != nil {
		return err
	}
	fair := 0
	if req.Fair && req.Mode.Limit == 0 { // permits do not block fair exclusive requests
		fair = 1
	}
	_, err := run.Exec(ctx, statement.Enqueue, req.Name, req.Owner.Hex(), millis(driver.PlaceTTL(req.TTL)), fair, modeText(req.Mode))
	return err
}

// keepPlaces renews the places of all waiters for a place that is due. It reports whether the
// place exists.
func (s *Store) keepPlaces(ctx context.Context, place string) (kept bool, err error) {
	for {
		if state := s.places.Attempt(place); state != places.Old {
			return state == places.Young, nil
		}
		if underway := s.places.Begin(); underway != nil {
			select {
			case <-underway:
				continue
			case <-ctx.Done():
				return false, s.explain(ctx, "acquire", ctx.Err())
			}
		}
		err := s.renewPlaces(ctx)
		s.places.End()
		return s.places.Has(place), err // a place that is locked is not renewed, and exists
	}
}

// renewPlaces writes the places of all waiters that made an attempt. It creates none: an owner may
// have left meanwhile. A place that another transaction keeps locked stays as it is, so that it costs
// the other waiters nothing.
func (s *Store) renewPlaces(ctx context.Context) error {
	var unlocked, gone []places.Renewal
	var renewed map[statement.Key]bool
	err := s.runJob(ctx, "acquire", &batch.Job{Urgent: true, Run: func(ctx context.Context, run statement.Runner) (err error) {
		unlocked, gone = s.places.Collect(), nil
		if run.HasRowLocks() && len(unlocked) > 1 {
			if unlocked, gone, err = findUnlocked(ctx, run, unlocked); err != nil {
				return err
			}
		}
		renewed, err = run.Extend(ctx, statement.KeepPlaces, statement.KeptPlaces, encodePlaces(unlocked), len(unlocked))
		return err
	}})
	if err == nil {
		s.places.NoteRenewed(unlocked, renewed)
		s.places.NoteRenewed(gone, map[statement.Key]bool{})
	}
	return err
}

func encodePlaces(all []places.Renewal) string {
	rows := make([][3]any, len(all))
	for i, p := range all {
		rows[i] = [3]any{p.Name, p.Owner, millis(p.Remaining)}
	}
	return sqldb.JSON(rows)
}

// findUnlocked returns the places that no other transaction keeps locked, and those that are gone or have
// expired. What is in neither is locked. An expired place may be locked, too: it must not be written.
func findUnlocked(ctx context.Context, run statement.Runner, all []places.Renewal) (unlocked, gone []places.Renewal, err error) {
	list := encodePlaces(all)
	free, err := run.ReadKeys(ctx, statement.UnlockedPlaces, list)
	if err != nil || len(free) == len(all) {
		return all, nil, err
	}
	existing, err := run.ReadKeys(ctx, statement.KeptPlaces, list)
	for _, p := range all {
		switch {
		case free[p.Key]:
			unlocked = append(unlocked, p)
		case !existing[p.Key]:
			gone = append(gone, p)
		}
	}
	return unlocked, gone, err
}
