package fence

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestNarrowColumnIsRefused checks that a column that truncates the token rejects
// the holder, instead of accepting every write.
func TestNarrowColumnIsRefused(t *testing.T) {
	t.Parallel()
	maria, postgres := servers.Run(t, servers.MariaDB).URL(), servers.Run(t, servers.Postgres).URL()
	const notStrict = ""
	for what, narrow := range map[string]struct {
		db     database
		column string
	}{
		"INT of MariaDB": {openMariaDB(t, maria, false, notStrict), "INT"},
		"INT of MariaDB that counts what it finds":    {openMariaDB(t, maria, true, notStrict), "INT"},
		"DOUBLE of MariaDB that counts what it finds": {openMariaDB(t, maria, true), "DOUBLE"},
		"REAL of SQLite":                 {openSQLite(t), "REAL"},
		"DOUBLE PRECISION of PostgreSQL": {openPostgres(t, postgres), "DOUBLE PRECISION"},
	} {
		t.Run(what, func(t *testing.T) {
			db := narrow.db
			db.must(t, "DROP TABLE IF EXISTS items",
				"CREATE TABLE items (id BIGINT PRIMARY KEY, fence "+narrow.column+" NOT NULL DEFAULT 0)",
				"INSERT INTO items (id) VALUES (42)")
			items := db.guard(t, fence.Row{Table: "items", Key: "id"})
			advance := func(token uint64) error {
				return items.Do(t.Context(), db, 42, token, func(*sql.Tx) error { return nil })
			}
			if err := advance(7); err != nil {
				t.Fatalf("a token that fits: %v", err)
			}
			const large = 1<<53 + 1
			if err := advance(large); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "token") {
				t.Errorf("a token that the column truncates: %v; want an error about the column", err)
			}
			if err := advance(6); !errors.Is(err, fence.ErrStale) {
				t.Errorf("token 6 after 7: %v; want ErrStale", err)
			}
		})
	}
}
