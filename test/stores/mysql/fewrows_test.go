package mysql

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// The server may read a table of few rows as a whole. Then it would wait for rows that
// another transaction keeps locked.

func TestRenewalAmongFewRows(t *testing.T) {
	t.Parallel()
	raw := database.URL(t)
	store := database.Opened(t, raw)
	var grants [2]driver.Grant
	for i, name := range []string{"kept", "locked"} {
		var err error
		if grants[i], err = store.Acquire(sqlrig.Within(t), sqlrig.Request(name)); err != nil {
			t.Fatal(err)
		}
	}
	defer lockRow(t, database.DB(t, raw), `SELECT name FROM dlock_locks WHERE name = 'locked' FOR UPDATE`)()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if errs := store.Renew(ctx, grants[:1]); errs != nil {
		t.Errorf("Renew while the only other row is locked: %v", errs[0])
	}
}

func TestJanitorAmongFewRows(t *testing.T) {
	t.Parallel()
	raw := database.URL(t, emptyIsNull) // where the first name that is looked for is no empty one
	admin := database.DB(t, raw)
	tables, err := sqllock.Schema(sqllock.MySQL, "")
	if err != nil {
		t.Fatal(err)
	}
	sqlrig.Exec(t, admin, tables...)
	sqlrig.Exec(t, admin, `INSERT INTO dlock_locks (name, token, since, expires, holder)
VALUES ('old', 1, 0, 0, '{}'), ('locked', 1, 0, `+now+`, '{}')`)
	defer lockRow(t, admin, `SELECT name FROM dlock_locks WHERE name = 'locked' FOR UPDATE`)()
	database.Opened(t, raw) // it sweeps at once
	sqlrig.Eventually(t, "the row that nobody needs is deleted", func() bool {
		return count(t, admin, `SELECT COUNT(*) FROM dlock_locks WHERE name = 'old'`) == 0
	})
}

func TestWaiterRowsAmongFewRows(t *testing.T) {
	t.Parallel()
	raw := database.URL(t)
	store, admin := database.Opened(t, raw), database.DB(t, raw)
	watch := func(name string) (stop func()) {
		t.Helper()
		stop, err := store.Watch(t.Context(), sqlrig.Request(name), func() {})
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	stop := watch("leaves")
	defer watch("locked")()
	sqlrig.Eventually(t, "both are seen", func() bool { return count(t, admin, `SELECT COUNT(*) FROM dlock_queue`) == 2 })
	defer lockRow(t, admin, `SELECT name FROM dlock_queue WHERE name = 'locked' FOR UPDATE`)()
	stop()
	sqlrig.Eventually(t, "who has left is not seen", func() bool {
		return count(t, admin, `SELECT COUNT(*) FROM dlock_queue WHERE name = 'leaves'`) == 0
	})
}

// lockRow locks a row as an administrator might, until unlock is called.
func lockRow(t *testing.T, db *sql.DB, query string) (unlock func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := tx.QueryRowContext(t.Context(), query).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
