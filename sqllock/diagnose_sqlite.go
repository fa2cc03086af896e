package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var sqliteChecks = []check{sqliteFile, sqliteJournal, sqliteSynchronous, sqliteTables, sqliteWritable}

func sqliteFile(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "file"
	path, err := sqlitePath(ctx, s.db)
	if path == "" {
		return breaking(driver.PromiseRestart, sqldb.Warning(name, "The database is in memory: no other process sees its locks, and they end with this one.")), err
	}
	switch kind, remote := fileSystem(path); {
	case remote:
		return breaking(driver.PromiseExclusion, sqldb.Problem(name, "%s is on a network file system (%s). SQLite needs a local one, or two can hold a lock at once.", path, kind)), err
	case kind != "":
		return sqldb.Warning(name, "%s is on a file system (%s) that may be remote. Make sure that it is not, since SQLite needs a local one.", path, kind), err
	}
	return sqldb.Fine(name, path), err
}

func sqliteJournal(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "journal_mode"
	var mode string
	err := s.ask(ctx, `PRAGMA journal_mode`, &mode)
	switch mode {
	case "wal":
		return sqldb.Fine(name, mode), err
	case "off", "memory":
		return breaking(driver.PromiseRestart, sqldb.Problem(name, "%s: a crash can damage the database. Use WAL; SQLiteDSN does.", mode)), err
	}
	return sqldb.Warning(name, "%s: a reader keeps writers waiting. Use WAL; SQLiteDSN does.", mode), err
}

func sqliteSynchronous(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "synchronous"
	var level int
	err := s.ask(ctx, `PRAGMA synchronous`, &level)
	value := [...]string{"off", "normal", "full", "extra"}[min(max(level, 0), 3)]
	if level < 2 {
		return breaking(driver.PromiseRestart, sqldb.Warning(name, "%s: a power failure can undo the last locks and tokens. Use FULL; SQLiteDSN does.", value)), err
	}
	return sqldb.Fine(name, value), err
}

func sqliteTables(ctx context.Context, s *Store) (driver.Finding, error) {
	const count = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name COLLATE NOCASE IN (?1, ?2, ?3)`
	var n int
	err := s.db.QueryRowContext(ctx, count, s.tables.Locks, s.tables.Queue, s.tables.Meta).Scan(&n)
	if n < 3 {
		return sqldb.Problem("tables", "%s: not all of them exist any more. Open the store again.", s.tableNames()), err
	}
	return sqldb.Fine("tables", s.tableNames()), err
}

// sqliteWritable writes without changing anything.
func sqliteWritable(ctx context.Context, s *Store) (driver.Finding, error) {
	_, err := s.db.ExecContext(ctx, s.tables.Expand("", `UPDATE {meta} SET value = value WHERE key = 'floor'`))
	if err != nil && ctx.Err() == nil && !s.facts.Classify(err).Retry {
		return sqldb.Problem("writable", "The file cannot be written to: %v.", err), nil
	}
	return sqldb.Fine("writable", "The file can be written to."), err
}
