package sqllock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

func sqliteFile(ctx context.Context, s *Store) (driver.Finding, error) {
	const check = "file"
	path, err := sqlitePath(ctx, s.db)
	if err != nil {
		return driver.Finding{}, err
	}
	if path == "" {
		return driver.Finding{Check: check, Level: driver.LevelWarning, Breaks: driver.PromiseRestart,
			Message: "The database is in memory: no other process sees its locks, and they end with this one."}, nil
	}
	switch kind, remote := fileSystem(path); {
	case remote:
		return driver.Finding{Check: check, Level: driver.LevelProblem, Breaks: driver.PromiseExclusion,
			Message: fmt.Sprintf("%s is on a network file system (%s). SQLite needs a local one, or two can hold a lock at once.", path, kind)}, nil
	case kind != "":
		return driver.Finding{Check: check, Level: driver.LevelWarning,
			Message: fmt.Sprintf("%s is on a file system (%s) that may be remote. Make sure that it is not, since SQLite needs a local one.", path, kind)}, nil
	}
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: path}, nil
}

func sqliteJournal(ctx context.Context, s *Store) (driver.Finding, error) {
	var mode string
	err := s.db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode)
	finding := driver.Finding{Check: "journal_mode", Level: driver.LevelOK, Message: mode}
	switch mode {
	case "wal":
	case "off", "memory":
		finding.Level, finding.Breaks = driver.LevelProblem, driver.PromiseRestart
		finding.Message = mode + ": a crash can damage the database. Use WAL; SQLiteDSN does."
	default:
		finding.Level = driver.LevelWarning
		finding.Message = mode + ": a reader keeps writers waiting. Use WAL; SQLiteDSN does."
	}
	return finding, err
}

func sqliteSynchronous(ctx context.Context, s *Store) (driver.Finding, error) {
	var level int
	err := s.db.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level)
	finding := driver.Finding{Check: "synchronous", Level: driver.LevelOK}
	switch level {
	case 0, 1:
		finding.Level, finding.Breaks = driver.LevelWarning, driver.PromiseRestart
		finding.Message = [2]string{"off", "normal"}[level] +
			": a power failure can undo the last locks and tokens. Use FULL; SQLiteDSN does."
	case 2:
		finding.Message = "full"
	default:
		finding.Message = "extra"
	}
	return finding, err
}

func sqliteTables(ctx context.Context, s *Store) (driver.Finding, error) {
	const count = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name COLLATE NOCASE IN (?1, ?2, ?3)`
	var n int
	err := s.db.QueryRowContext(ctx, count, s.tables.Locks, s.tables.Queue, s.tables.Meta).Scan(&n)
	finding := driver.Finding{Check: "tables", Level: driver.LevelOK, Message: s.tables.Locks + ", " + s.tables.Queue + ", " + s.tables.Meta}
	if n < 3 {
		finding.Level = driver.LevelProblem
		finding.Message += ": not all of them exist any more. Open the store again."
	}
	return finding, err
}

// sqliteWritable writes without changing anything.
func sqliteWritable(ctx context.Context, s *Store) (driver.Finding, error) {
	finding := driver.Finding{Check: "writable", Level: driver.LevelOK, Message: "The file can be written to."}
	_, err := s.db.ExecContext(ctx, s.tables.Expand("", `UPDATE {meta} SET value = value WHERE key = 'floor'`))
	if err == nil {
		return finding, nil
	}
	if failure := s.facts.Classify(err); ctx.Err() != nil || failure.Retry {
		return finding, err
	}
	finding.Level = driver.LevelProblem
	finding.Message = fmt.Sprintf("The file cannot be written to: %v.", err)
	return finding, nil
}
