package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/bundle"
)

// fileStore is a store with a database of its own, as another program has it.
type fileStore struct {
	*sqllock.Store
	db *sql.DB
}

func (s fileStore) Close() error { return errors.Join(s.Store.Close(), s.db.Close()) }

func openFile(ctx context.Context, path string) (driver.Store, error) {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return fileStore{store, db}, nil
}

func TestConformance(t *testing.T) {
	path := tempFile(t)
	db := openDB(t, path)
	// All clauses write to one file, which takes one writer at a time: with
	// many of them at once the answers take longer than the locks last.
	ttl, parallel := 300*time.Millisecond, 4
	if raceEnabled {
		ttl, parallel = time.Second, 2
	}
	bundle.Store{
		URL:       path,
		Open:      openFile,
		Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, db) },
	}.Conform(t, drivertest.Config{TTL: ttl, Parallel: parallel})
}

// leftovers are locks and places in the queue that have not expired.
func leftovers(ctx context.Context, db *sql.DB) (left []string, err error) {
	rows, err := db.QueryContext(ctx, `
SELECT 'lock', name FROM dlock_locks WHERE owner IS NOT NULL AND expires > unixepoch('subsec') * 1000
UNION ALL SELECT 'place', name FROM dlock_queue WHERE expires > unixepoch('subsec') * 1000`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name string
		if err := rows.Scan(&kind, &name); err != nil {
			return nil, err
		}
		left = append(left, fmt.Sprintf("%s %q", kind, name))
	}
	return left, rows.Err()
}
