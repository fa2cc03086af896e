package statement

import (
	"testing"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// TestEveryDialectHasEveryStatement: SQLite, where Renew returns rows and no row is locked, does
// without two statements, PostgreSQL, where Renew returns rows, without one, and MySQL, where settings
// of the connection begin a transaction, without one.
func TestEveryDialectHasEveryStatement(t *testing.T) {
	missing := map[sqldb.Dialect]map[ID]bool{
		sqldb.SQLite:   {Renewed: true, UnlockedPlaces: true},
		sqldb.MySQL:    {Begin: true},
		sqldb.Postgres: {Renewed: true},
	}
	for dialect, texts := range ofDialect {
		for id, text := range texts.texts() {
			if text == "" && !missing[dialect][ID(id)] {
				t.Errorf("%s has no text for statement %d", dialect, id)
			}
		}
	}
}
