package sqlsession_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
)

// TestSQLModes: the modes that an application sets for its connections make no
// difference. With ORACLE a bare BEGIN is not the start of a transaction.
func TestSQLModes(t *testing.T) {
	eachOf(t, sqlsession.MySQL, func(t *testing.T, s setup) {
		for _, mode := range []string{"ORACLE", "ANSI", "STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL", ""} {
			store, err := openDSN(t.Context(), s.database, s.dsn(s.server.Addr(), s.name)+"?sql_mode=%27"+mode+"%27", s.scheme)
			if err != nil {
				t.Errorf("sql_mode %q: %v", mode, err)
				continue
			}
			for range 2 { // a name that is new, and one that has a row
				grant := mustAcquire(t, store, request("x"+mode))
				if _, err := store.Acquire(t.Context(), request(grant.Name)); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("sql_mode %q: Acquire of a held lock: want ErrHeld, got: %v", mode, err)
				}
				mustRenew(t, store, grant)
				mustRelease(t, store, grant)
			}
			if err := store.Close(); err != nil {
				t.Errorf("sql_mode %q: Close: %v", mode, err)
			}
		}
	})
}
