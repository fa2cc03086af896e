package sqllock

import (
	"context"
	"database/sql"

	"github.com/dlock-go/dlock/driver"
)

// diagnoser is the part of a dialect that examines a database.
type diagnoser interface {
	diagnose(context.Context, *sql.DB, tables) ([]driver.Finding, error)
}

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	err = s.retry(ctx, "diagnose", func() (err error) {
		findings, err = s.dialect.diagnose(ctx, s.db, s.tables)
		return err
	})
	return findings, err
}
