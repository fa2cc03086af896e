package fence

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestColumnThatHoldsNoTokensIsRefused: a column that may keep another number than the token would let
// stale tokens pass later. It is refused at once, and one that holds every token is not.
func TestColumnThatHoldsNoTokensIsRefused(t *testing.T) {
	t.Parallel()
	maria, postgres := servers.Run(t, servers.MariaDB).URL(), servers.Run(t, servers.Postgres).URL()
	const notStrict = ""
	tables := 0
	for _, test := range []struct {
		name            string
		db              database
		refused, usable []string
	}{
		{"mariadb", openMariaDB(t, maria, false, notStrict), []string{"DECIMAL(6,0)", "INT", "SMALLINT", "DOUBLE", "FLOAT", "VARCHAR(20)"}, []string{"BIGINT", "BIGINT UNSIGNED"}},
		{"mariadb with found rows", openMariaDB(t, maria, true), []string{"DECIMAL(6,0)", "INT", "DOUBLE"}, []string{"BIGINT"}},
		{"sqlite", openSQLite(t), []string{"REAL", "TEXT"}, []string{"BIGINT", "INTEGER", ""}},
		{"postgres", openPostgres(t, postgres), []string{"NUMERIC(6,0)", "INTEGER", "SMALLINT", "DOUBLE PRECISION", "REAL"}, []string{"BIGINT", "token"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := test.db
			if db.dialect == fence.PostgreSQL {
				db.must(t, "CREATE DOMAIN token AS BIGINT")
			}
			advance := func(column string, tokens ...uint64) (err error) {
				t.Helper()
				tables++
				table := fmt.Sprint("items", tables) // pgx knows the types of a table that it has read
				db.must(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, fence "+column+" NOT NULL DEFAULT 0)",
					"INSERT INTO "+table+" (id) VALUES (42)")
				items := db.guard(t, fence.Row{Table: table, Key: "id"})
				for _, token := range tokens {
					if err == nil {
						err = items.Do(t.Context(), db, 42, token, func(*sql.Tx) error { return nil })
					}
				}
				return err
			}
			for _, column := range test.refused {
				if err := advance(column, 7); err == nil || !strings.Contains(err.Error(), "it must be an integer of 64 bits") {
					t.Errorf("a column of type %s: %v; want that it must be an integer of 64 bits", column, err)
				}
			}
			for _, column := range test.usable {
				if err := advance(column, 7, 1<<53+1, math.MaxInt64-1, math.MaxInt64); err != nil {
					t.Errorf("a column of type %s: %v", column, err)
				}
				if err := advance(column, math.MaxInt64, math.MaxInt64-1); !errors.Is(err, fence.ErrStale) {
					t.Errorf("a stale token in a column of type %s: %v; want ErrStale", column, err)
				}
			}
		})
	}
}
