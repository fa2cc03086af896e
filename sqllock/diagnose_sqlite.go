package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

var sqliteChecks = []check{
	{"file", sqliteFile}, {"journal_mode", sqliteJournal}, {"synchronous", sqliteSynchronous},
	{"tables", sqliteTables}, {"writable", sqliteWritable},
}

func sqliteFile(ctx context.Context, s *Store, f *finding) error {
	path, err := sqlitePath(ctx, s.db)
	f.ok(path)
	if path == "" {
		f.warning(driver.PromiseRestart, "The database is in memory: no other process sees its locks, and they end with this one.")
		return err
	}
	switch kind, remote := fileSystem(path); {
	case remote:
		f.problem(driver.PromiseExclusion, "%s is on a network file system (%s). SQLite needs a local one, or two can hold a lock at once.", path, kind)
	case kind != "":
		f.warning("", "%s is on a file system (%s) that may be remote. Make sure that it is not, since SQLite needs a local one.", path, kind)
	}
	return err
}

func sqliteJournal(ctx context.Context, s *Store, f *finding) error {
	var mode string
	err := s.ask(ctx, `PRAGMA journal_mode`, &mode)
	switch mode {
	case "wal":
		f.ok(mode)
	case "off", "memory":
		f.problem(driver.PromiseRestart, "%s: a crash can damage the database. Use WAL; SQLiteDSN does.", mode)
	default:
		f.warning("", "%s: a reader keeps writers waiting. Use WAL; SQLiteDSN does.", mode)
	}
	return err
}

func sqliteSynchronous(ctx context.Context, s *Store, f *finding) error {
	var level int
	err := s.ask(ctx, `PRAGMA synchronous`, &level)
	name := [...]string{"off", "normal", "full", "extra"}[min(max(level, 0), 3)]
	f.ok(name)
	if level < 2 {
		f.warning(driver.PromiseRestart, "%s: a power failure can undo the last locks and tokens. Use FULL; SQLiteDSN does.", name)
	}
	return err
}

func sqliteTables(ctx context.Context, s *Store, f *finding) error {
	const count = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name COLLATE NOCASE IN (?1, ?2, ?3)`
	var n int
	err := s.db.QueryRowContext(ctx, count, s.tables.Locks, s.tables.Queue, s.tables.Meta).Scan(&n)
	tables := s.tables.Locks + ", " + s.tables.Queue + ", " + s.tables.Meta
	f.ok(tables)
	if n < 3 {
		f.problem("", "%s: not all of them exist any more. Open the store again.", tables)
	}
	return err
}

// sqliteWritable writes without changing anything.
func sqliteWritable(ctx context.Context, s *Store, f *finding) error {
	f.ok("The file can be written to.")
	_, err := s.db.ExecContext(ctx, s.tables.Expand("", `UPDATE {meta} SET value = value WHERE key = 'floor'`))
	if err == nil || ctx.Err() != nil || s.facts.Classify(err).Retry {
		return err
	}
	f.problem("", "The file cannot be written to: %v.", err)
	return nil
}
