package subjects

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

var sqlite = Store{
	Name:      "sqlite",
	Open:      openSQLite,
	Processes: true,
	Held:      2_000, // each is a synced write
	Subjects: append([]Subject{
		{Name: "raw", Open: openRawSQLite},
		direct("bare", openSQLite, millisecond),
		library("dlock", openSQLite).modes(),
		library("dlock", openSQLite).modes().exclusive(),
	}, commands(func(dir string) (string, error) {
		return "sqlite://" + filepath.Join(dir, "exec.db"), nil
	}, flockCommand)...),
}

// millisecond is the pause between two attempts of a subject without
// notifications.
func millisecond(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openFile opens the file of a round: write-ahead log, synchronous FULL.
func openFile(dir string) (*sql.DB, error) {
	return sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(dir, "bench.db")))
}

func openSQLite(dir string) (func(context.Context) (opened, error), error) {
	return func(ctx context.Context) (opened, error) {
		db, err := openFile(dir)
		if err != nil {
			return opened{}, err
		}
		s, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
		if err != nil {
			return opened{}, errors.Join(err, db.Close())
		}
		return opened{s, db.Close}, nil
	}, nil
}

// rawSQLite is the floor: an update that succeeds if the row is free or expired,
// and an update that frees it. It has one connection, since SQLite admits one
// writer.
type rawSQLite struct {
	db               *sql.DB
	acquire, release *sql.Stmt
	commandCount     atomic.Uint64
}

func openRawSQLite(dir string) (func(context.Context) (Client, error), error) {
	return func(ctx context.Context) (Client, error) {
		db, err := openFile(dir)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		c := &rawSQLite{db: db}
		if err := c.prepare(ctx); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return c, nil
	}, nil
}

func (c *rawSQLite) prepare(ctx context.Context) error {
	const (
		create  = `CREATE TABLE IF NOT EXISTS raw (name TEXT PRIMARY KEY, owner TEXT, expires REAL) WITHOUT ROWID`
		acquire = `UPDATE raw SET owner = ?2, expires = unixepoch('subsec') + ?3 WHERE name = ?1 AND (owner IS NULL OR expires < unixepoch('subsec'))`
		release = `UPDATE raw SET owner = NULL WHERE name = ?1 AND owner = ?2`
	)
	return untilNotBusy(ctx, func() (err error) {
		if _, err = c.db.ExecContext(ctx, create); err != nil {
			return err
		}
		if c.acquire, err = c.db.PrepareContext(ctx, acquire); err != nil {
			return err
		}
		c.release, err = c.db.PrepareContext(ctx, release)
		return err
	})
}

func (c *rawSQLite) Worker(ctx context.Context, name string) (Worker, error) {
	err := untilNotBusy(ctx, func() error {
		_, err := c.db.ExecContext(ctx, `INSERT OR IGNORE INTO raw (name) VALUES (?1)`, name)
		return err
	})
	return &rawSQLiteWorker{c, name, driver.NewOwner().Hex()}, err
}

func (c *rawSQLite) Commands() (uint64, bool) { return c.commandCount.Load(), true }
func (c *rawSQLite) Close() error             { return c.db.Close() }

type rawSQLiteWorker struct {
	*rawSQLite
	name, owner string
}

func (w *rawSQLiteWorker) Lock(ctx context.Context) error {
	for {
		changed, err := w.change(ctx, w.acquire, w.name, w.owner, dlock.DefaultTTL.Seconds())
		if err != nil || changed {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawSQLiteWorker) Unlock(ctx context.Context) error {
	changed, err := w.change(ctx, w.release, w.name, w.owner)
	if err == nil && !changed {
		return driver.ErrNotHeld
	}
	return err
}

func (w *rawSQLiteWorker) change(ctx context.Context, stmt *sql.Stmt, args ...any) (changed bool, err error) {
	err = untilNotBusy(ctx, func() error {
		w.commandCount.Add(1)
		result, err := stmt.ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		changed = n == 1
		return err
	})
	return changed, err
}

// untilNotBusy repeats a call that another process blocked.
func untilNotBusy(ctx context.Context, do func() error) error {
	for {
		err := do()
		coded, ok := errors.AsType[interface {
			error
			Code() int
		}](err)
		const busy, primary = 5, 0xff
		if !ok || coded.Code()&primary != busy || ctx.Err() != nil {
			return err
		}
	}
}
