package subjects

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"

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
	}, commands("sqlite://FOLDER/exec.db", flockCommand)...),
}

var openSQLite = byURL(sqllock.Open, "sqlite://FOLDER/bench.db", nil)

// openRawSQLite opens the floor: an update that succeeds if the row is free or
// expired, and an update that frees it. It has one connection, since SQLite admits
// one writer.
func openRawSQLite(ctx context.Context, at Place) (*Client, error) {
	const (
		create  = `CREATE TABLE IF NOT EXISTS raw (name TEXT PRIMARY KEY, owner TEXT, expires REAL) WITHOUT ROWID`
		insert  = `INSERT OR IGNORE INTO raw (name) VALUES (?1)`
		acquire = `UPDATE raw SET owner = ?2, expires = unixepoch('subsec') + ?3
WHERE name = ?1 AND (owner IS NULL OR expires < unixepoch('subsec'))`
		release = `UPDATE raw SET owner = NULL WHERE name = ?1 AND owner = ?2`
	)
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(at.Dir, "bench.db")))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	var prepared [3]*sql.Stmt
	err = untilNotBusy(ctx, func() (err error) {
		_, err = db.ExecContext(ctx, create)
		for i, text := range []string{insert, acquire, release} {
			if err == nil {
				prepared[i], err = db.PrepareContext(ctx, text)
			}
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	var sent atomic.Uint64
	change := func(ctx context.Context, stmt *sql.Stmt, args ...any) (changed bool, err error) {
		err = untilNotBusy(ctx, func() error {
			sent.Add(1)
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
	newWorker := func(ctx context.Context, want Want) (Worker, error) {
		owner := driver.NewOwner().Hex()
		_, err := change(ctx, prepared[0], want.Name)
		return Worker{
			Lock: polling(func(ctx context.Context) (bool, error) {
				return change(ctx, prepared[1], want.Name, owner, dlock.DefaultTTL.Seconds())
			}),
			Unlock: func(ctx context.Context) error { return released(change(ctx, prepared[2], want.Name, owner)) },
		}, err
	}
	return &Client{newWorker, sent.Load, db.Close}, nil
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
