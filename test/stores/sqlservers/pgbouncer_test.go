package sqlservers

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/lib/pq"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestLibPqBehindPgBouncer: lib/pq sends a statement and its arguments apart, which a pooler may give to
// different sessions. It is refused unless it sends them together.
func TestLibPqBehindPgBouncer(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		server := servers.Run(t, servers.Postgres)
		bouncer := servers.Run(t, servers.PgBouncer(server, 2))
		for _, test := range []struct {
			addr, parameters string
			refused          bool
		}{
			{server.Addr(), "", false},
			{bouncer.Addr(), "", true},
			{bouncer.Addr(), "&binary_parameters=yes", false},
		} {
			db, err := sql.Open("postgres", "postgres://postgres@"+test.addr+"/postgres?sslmode=disable"+test.parameters)
			check(t, err)
			closeAfter(t, db)
			store, err := sqllock.New(within(t), db, &sqllock.Options{Dialect: sqllock.Postgres})
			if test.refused {
				if !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), "binary_parameters=yes") {
					t.Errorf("a pooler: %v; want ErrMisconfigured and what to set", err)
				}
				continue
			}
			check(t, err)
			closeAfter(t, store)
			release(t, store, acquire(t, store, "x")...)
		}
	})
}

// TestStatementPooling: what needs a transaction fails in PgBouncer's mode without any, and says why. doctor does, too.
func TestStatementPooling(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		server := servers.Run(t, servers.Postgres)
		s := postgres.on(t, server, "default_query_exec_mode=exec")
		s.open(t) // which creates the tables
		kind := *servers.PgBouncer(server, 2)
		configure := kind.Configure
		kind.Configure = func(in servers.Instance) error {
			err := configure(in)
			path := filepath.Join(in.Dir, "pgbouncer.ini")
			text, failed := os.ReadFile(path)
			changed := strings.Replace(string(text), "pool_mode = transaction", "pool_mode = statement", 1)
			return errors.Join(err, failed, os.WriteFile(path, []byte(changed), 0o600))
		}
		store := s.at(servers.Run(t, &kind).Addr()).open(t)
		const why = "pool_mode=statement"
		if _, err := store.AcquireAll(within(t), []driver.Request{request("x"), request("y")}); !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), why) {
			t.Errorf("AcquireAll: %v; want ErrMisconfigured and %s", err, why)
		}
		findings, err := store.Diagnose(within(t))
		check(t, err)
		for _, f := range findings {
			if f.Level == driver.LevelProblem && strings.Contains(f.Message, why) {
				return
			}
		}
		t.Errorf("no problem of %s is among %+v", why, findings)
	})
}
