package sqlservers

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCommandBehindTableLock: a session that locks the table makes the server silent for
// dlock, which gives up after five seconds.
func TestCommandBehindTableLock(t *testing.T) {
	only(t, postgres, commandBehindTableLock)
}

func commandBehindTableLock(t *testing.T) {
	server := servers.Run(t, servers.Postgres)
	if out := command.Run(t, server.URL(), "exec", "a", "--", "true"); out.Status != 0 { // creates the tables
		t.Fatalf("%+v", out)
	}
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE dlock_locks IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	t.Run("commands", func(t *testing.T) {
		for _, args := range [][]string{{"exec", "-n", "a", "--", "true"}, {"ls"}, {"doctor"}} {
			t.Run(args[0], func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				out := command.Run(t, server.URL(), args...)
				if took := time.Since(began); took > limit {
					t.Errorf("dlock %v took %v", args, took)
				}
				if out.Status != 69 || !strings.Contains(out.Stderr, "no answer within 5s") {
					t.Errorf("dlock %v: %+v; want 69 and the limit", args, out)
				}
			})
		}
	})
}
