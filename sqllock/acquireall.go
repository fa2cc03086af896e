package sqllock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// AcquireAll implements driver.BatchAcquirer with one transaction, whose number of statements does not
// depend on the number of names: it locks and reads all rows, decides, and writes all rows. A request gives
// way to the places of others, and neither takes nor gives up a place: dlock has no batches that queue.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	sorted := make([]*driver.Request, len(reqs)) // by name, so that deadlocks are rare
	for i := range reqs {
		sorted[i] = &reqs[i]
	}
	slices.SortFunc(sorted, func(a, b *driver.Request) int { return strings.Compare(a.Name, b.Name) })
	var failed error
	var missing []string // names without a row
	var tokens map[string]uint64
	attempt := func() error {
		failed = s.inTx(ctx, func(run statement.Runner) (err error) {
			tokens, missing, err = acquireRows(ctx, run, sorted)
			return err
		})
		return failed
	}
	err := s.withConn(ctx, s.writing, nil, "acquire", attempt)
	for range maxRaces {
		if !errors.Is(failed, errNoRow) {
			break
		}
		// In a statement of its own, because a transaction that inserts rows beside those that it
		// locks could deadlock with another one.
		err = s.withConn(ctx, s.writing, nil, "acquire", func() error { return insertMissing(ctx, s.run(), missing) })
		if err != nil {
			break
		}
		err = s.withConn(ctx, s.writing, nil, "acquire", attempt)
	}
	switch {
	case isUnknown(failed) && s.mayHappen(failed):
		for i := range reqs {
			s.attempts.Unanswered(reqs[i].Name, reqs[i].Owner)
		}
	case err != nil && !isUnknown(failed):
		err = driver.NotSent(err) // what is not committed is undone
	}
	if err != nil {
		return nil, err
	}
	grants := make([]driver.Grant, len(reqs))
	for i := range reqs {
		grants[i] = granted(&reqs[i], tokens[reqs[i].Name])
	}
	return grants, nil
}

var errNoRow = errors.New("a name has no row yet")

func insertMissing(ctx context.Context, run statement.Runner, names []string) error {
	inserted, err := run.Changed(ctx, statement.InsertAll, sqldb.JSON(names))
	if err == nil && !inserted { // other callers were faster, or the floor is missing
		_, err = run.ReadFloor(ctx)
	}
	return err
}

// acquireRows makes one attempt for all requests, and returns the tokens by name. If rows are missing, it
// returns errNoRow and their names.
func acquireRows(ctx context.Context, run statement.Runner, reqs []*driver.Request) (tokens map[string]uint64, missing []string, err error) {
	locks, before, err := lockAll(ctx, run, reqs)
	if err != nil {
		return nil, nil, err
	}
	tokens = make(map[string]uint64, len(reqs))
	var rows [][6]any
	for _, req := range reqs {
		lock := locks[req.Name]
		if lock == nil {
			missing = append(missing, req.Name)
			continue
		}
		err := shareRefusal(req, lock, before[req.Name])
		if err == nil && req.Mode == (driver.Mode{}) && lock.Mode != req.Mode {
			err = refusal(req, lock, before[req.Name].fair) // a share of the owner's own
		}
		if err == nil {
			tokens[req.Name], err = admit(req, lock)
		}
		if err != nil {
			return nil, nil, err
		}
		r := lock.Row()
		rows = append(rows, [6]any{req.Name, r.Token, r.Owner, r.Since, r.Expires, r.Holder})
	}
	if len(missing) > 0 {
		return nil, missing, errNoRow
	}
	_, err = run.Exec(ctx, statement.SaveAll, sqldb.JSON(rows))
	return tokens, nil, err
}

// lockAll locks the rows of all requests and reads them.
func lockAll(ctx context.Context, run statement.Runner, reqs []*driver.Request) (map[string]*row.Lock, map[string]placesBefore, error) {
	list := make([][3]string, len(reqs))
	for i, req := range reqs {
		list[i] = [3]string{req.Name, req.Owner.Hex(), modeBefore(req)}
	}
	locks, before := make(map[string]*row.Lock, len(reqs)), make(map[string]placesBefore)
	err := run.Each(ctx, statement.LockAll, []any{sqldb.JSON(list)}, func(scan func(...any) error) error {
		var name string
		var b placesBefore
		lock, err := readLock(scan, &b, &name)
		if err != nil {
			return err
		}
		locks[name], before[name] = lock, b
		return nil
	})
	return locks, before, err
}
