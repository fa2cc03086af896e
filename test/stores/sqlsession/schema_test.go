package sqlsession_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
)

// TestSearchPaths: programs that find the same table share its locks, also if their search
// paths differ. Locks of a table in another schema are others.
func TestSearchPaths(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme.String(), func(t *testing.T) {
			t.Parallel()
			s := onPostgres(t, scheme)
			order(t, s.open(t), "CREATE SCHEMA app")
			order(t, s.open(t), "CREATE SCHEMA apart")
			on := func(path string) *sqlsession.Store {
				db, err := sql.Open(s.driver, s.dsn(s.server.Addr(), s.name)+"&search_path="+path)
				check(t, err)
				t.Cleanup(func() { _ = db.Close() })
				return s.store(t, db)
			}
			public, app, apart := on("public"), on("app,public"), on("apart")
			grant := mustAcquire(t, public, request("x"))
			if second, err := app.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("two hold the same lock, with the tokens %d and %d: %v", grant.Token, second.Token, err)
			}
			mustRelease(t, apart, mustAcquire(t, apart, request("x")))
			mustRelease(t, public, grant)
			if next := mustAcquire(t, app, request("x")); next.Token <= grant.Token {
				t.Errorf("token %d was granted after %d", next.Token, grant.Token)
			}
		})
	}
}
