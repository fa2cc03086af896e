package statement

import (
	"testing"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// TestEveryDialectHasEveryStatement: SQLite, where Acquire inserts, Renew answers and no row
// is locked, does without three statements, and PostgreSQL, where Renew answers, without one.
func TestEveryDialectHasEveryStatement(t *testing.T) {
	missing := map[sqldb.Dialect]map[ID]bool{
		sqldb.SQLite:   {InsertFree: true, Renewed: true, RenewAtOnce: true},
		sqldb.MySQL:    {},
		sqldb.Postgres: {Renewed: true},
	}
	for dialect, texts := range ofDialect {
		for id, text := range texts() {
			if text == "" && !missing[dialect][ID(id)] {
				t.Errorf("%s has no text for statement %d", dialect, id)
			}
		}
	}
}
