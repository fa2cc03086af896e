package sqllock

import (
	"context"
	"database/sql"
)

// followSQLite looks when something was written.
func followSQLite(s *Store) changes {
	seen := sqliteChanges(s.ctx, s.db)
	seen.pace = &pace{told: seen.events != nil}
	return seen
}

// sqliteChanges follows the write-ahead log, or the database itself where there is
// none: one of them is written by every commit.
func sqliteChanges(ctx context.Context, db *sql.DB) changes {
	path, err := sqlitePath(ctx, db)
	if err != nil || path == "" {
		return noChanges()
	}
	var mode string
	if err := db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
		return noChanges()
	}
	if mode == "wal" {
		path += "-wal"
	}
	return followFile(path)
}

// sqlitePath returns the path of the database, empty if it is in memory.
func sqlitePath(ctx context.Context, db *sql.DB) (path string, err error) {
	err = db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	return path, err
}
