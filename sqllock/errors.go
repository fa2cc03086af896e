package sqllock

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// checkContext returns an error if the context of a call has ended before the call.
func checkContext(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, context.Cause(ctx))
}

// errTokenTooLarge: the token of a row cannot rise. A database returns its own error.
var errTokenTooLarge = errors.New("the token is too large")

// explain turns an error of the database into one of the contract.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	switch {
	case isRefusal(err), errors.Is(err, driver.ErrNotHeld):
		return err
	case s.closed.Load():
		return driver.ErrClosed
	case errors.Is(err, driver.ErrMisconfigured):
		return fmt.Errorf("%s: %w", op, err)
	}
	if busy := s.busy.Load(); busy != nil && cap(s.writing) == 1 && deadline.Passed(ctx) != nil {
		err = *busy // what keeps the only writer waiting keeps all callers waiting
	}
	failure := s.classify(err)
	failure.NoAnswer = sqldb.PoolInUse(s.db.Stats(), len(s.writing)+len(s.reading)+len(s.renewing))
	return failure.Describe(ctx, op, err)
}

// classify returns what an error of the database means, and which file causes it.
func (s *Store) classify(err error) sqldb.Failure {
	failure := s.facts.Classify(err)
	if failure.Kind != nil && isReadOnly(s.path) {
		return sqldb.Failure{Meaning: "the file system is read-only", Kind: driver.ErrMisconfigured}
	}
	if failure.Number || errors.Is(err, errTokenTooLarge) {
		return sqldb.Failure{Kind: driver.ErrMisconfigured, Meaning: fmt.Sprintf("the row of the name in %s, or floor in %s, has no token that can rise: "+
			"give it one that is larger than all tokens of the name so far, and far below 2^63", s.tables.Locks, s.tables.Meta)}
	}
	if !failure.Access || s.file == "" {
		return failure
	}
	switch file := inTheWay(s.file); {
	case file == "":
	case strings.HasSuffix(file, "-wal") || strings.HasSuffix(file, "-shm"):
		failure.Meaning = file + " cannot be written, as SQLite leaves it when the database is read-only: give it the mode and owner of the database"
	default:
		failure.Meaning = file + " cannot be written"
	}
	return failure
}

// inTheWay returns which of the files of an SQLite database, or its folder, this process cannot write, if
// there is one.
func inTheWay(path string) string {
	files := []string{path, path + "-wal", path + "-shm", filepath.Dir(path)}
	if i := slices.IndexFunc(files, func(file string) bool { return !isWritable(file) }); i >= 0 {
		return files[i]
	}
	return ""
}

// millis returns a TTL as the database counts it. It adds one, since the clock's own milliseconds are
// rounded and a lock must not end early.
func millis(ttl time.Duration) int64 {
	return int64((ttl+time.Millisecond-1)/time.Millisecond) + 1
}

func remaining(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
