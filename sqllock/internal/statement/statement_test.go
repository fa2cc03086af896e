package statement

import (
	"testing"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// TestEveryDialectHasEveryStatement: where updates return rows, nothing has to read them before or after.
// In SQLite no row is locked and no round trip is saved. In MySQL settings of the connection begin a
// transaction.
func TestEveryDialectHasEveryStatement(t *testing.T) {
	missing := map[sqldb.Dialect]map[ID]bool{
		sqldb.SQLite:   {Renewed: true, UnlockedPlaces: true, ReleaseAll: true, LockHeld: true},
		sqldb.MySQL:    {Begin: true},
		sqldb.Postgres: {Renewed: true, LockHeld: true},
	}
	for dialect, texts := range ofDialect {
		for id, text := range texts.texts() {
			if text == "" && !missing[dialect][ID(id)] {
				t.Errorf("%s has no text for statement %d", dialect, id)
			}
		}
	}
}
