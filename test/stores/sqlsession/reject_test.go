package sqlsession_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// pgBouncer is a pooler in front of a server, in one of its modes.
func pgBouncer(t *testing.T, postgres *servers.Server, mode string, connections int) *servers.Server {
	t.Helper()
	kind := *servers.PgBouncer(postgres, connections)
	configure := kind.Configure
	kind.Configure = func(in servers.Instance) error {
		if err := configure(in); err != nil {
			return err
		}
		file, err := os.OpenFile(filepath.Join(in.Dir, "pgbouncer.ini"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString("pool_mode = " + mode + "\n") // the last one counts
		return errors.Join(err, file.Close())
	}
	return servers.Run(t, &kind)
}

// TestPooler: New rejects a pooler that shares sessions between transactions, in every mode of
// the driver, and accepts a pooler in session mode.
func TestPooler(t *testing.T) {
	t.Parallel()
	postgres := servers.Run(t, servers.Postgres)
	for _, manner := range []string{"cache_statement", "cache_describe", "exec", "simple_protocol"} {
		for _, mode := range []string{"transaction 1", "transaction 2", "transaction 10", "session 10"} {
			t.Run(manner+"/"+mode, func(t *testing.T) {
				t.Parallel()
				var pool string
				var size int
				if _, err := fmt.Sscan(mode, &pool, &size); err != nil {
					t.Fatal(err)
				}
				bouncer := pgBouncer(t, postgres, pool, size)
				db, err := sql.Open("pgx", databases[1].dsn(bouncer.Addr(), databases[1].home)+"&default_query_exec_mode="+manner)
				check(t, err)
				defer db.Close()
				for _, scheme := range schemes {
					store, err := sqlsession.New(within(t, await.Limit), db, &sqlsession.Options{Dialect: sqlsession.Postgres, Scheme: scheme})
					if err == nil {
						defer store.Close()
					}
					if refused := errors.Is(err, driver.ErrUnsupported) && strings.Contains(err.Error(), "PgBouncer"); refused != (pool == "transaction") {
						t.Errorf("pool_mode %s, scheme %v: %v", pool, scheme, err)
					}
				}
			})
		}
	}
}

// TestSlowAnswerIsNoPooler: a statement whose answer takes seconds does not make New take the server
// for a pooler.
func TestSlowAnswerIsNoPooler(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	p := proxy.Run(t, s.server.Addr())
	slow := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("current_setting('dlock.session'")) },
		func(c *proxy.Conn) {
			c.Hold()
			time.AfterFunc(3*time.Second, c.Deliver) // of the five that New has
		})
	store, err := s.openAt(t.Context(), p.Addr())
	switch {
	case err == nil:
		mustRelease(t, store, mustAcquire(t, store, request("x")))
		check(t, store.Close())
	case !errors.Is(err, driver.ErrUnreachable): // the machine may be busy
		t.Errorf("New with a server that is slow for three seconds: %v", err)
	}
	await.Event(t, slow, "the statement that looks for a pooler")
}

// TestReadOnly: New rejects a server that is read-only, as replicas are.
func TestReadOnly(t *testing.T) {
	eachServer(t, func(t *testing.T, d database) *servers.Server {
		if d.driver == "pgx" {
			return servers.Run(t, d.kind, "-c", "default_transaction_read_only=on")
		}
		return servers.Run(t, d.kind, "--read-only=1")
	}, func(t *testing.T, s setup) {
		_, err := sqlsession.New(t.Context(), s.open(t), &sqlsession.Options{Dialect: s.dialect, Scheme: s.scheme})
		if !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("a read-only server: %v", err)
		}
	})
}

// TestAutocommitOff: New rejects connections that do not commit by themselves.
func TestAutocommitOff(t *testing.T) {
	eachOf(t, sqlsession.MySQL, func(t *testing.T, s setup) {
		for setting, says := range map[string]string{
			"autocommit=0": "autocommit is off", "completion_type=CHAIN": "completion_type is CHAIN", "completion_type=2": "completion_type is RELEASE",
		} {
			_, err := openDSN(t.Context(), s.database, s.dsn(s.server.Addr(), s.name)+"?"+setting, s.scheme)
			if !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", setting, err)
			}
		}
	})
}

// TestServerBecomesReadOnly: a server that becomes read-only, as a primary does before it
// becomes a replica, grants no more locks, and holders lose theirs, although their
// connections stay.
func TestServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		if d.dialect != sqlsession.MySQL {
			continue // PostgreSQL has to be started again for it, which ends all connections
		}
		for _, scheme := range schemes {
			t.Run(scheme.String(), func(t *testing.T) {
				t.Parallel()
				s := d.alone(scheme, servers.Run(t, d.kind))
				store, holder, idle := s.store(t, s.open(t)), s.store(t, s.open(t)), s.store(t, s.open(t))
				mustRelease(t, store, mustAcquire(t, store, request("new"))) // so that there is a row
				req, lost := losable("left alone")
				mustAcquire(t, idle, req)
				grant := mustAcquire(t, holder, request("x"))
				if _, err := s.server.SQL(t.Context(), "SET GLOBAL read_only = 1"); err != nil {
					t.Fatal(err)
				}
				if _, err := store.Acquire(t.Context(), request("new")); !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "read-only") {
					t.Errorf("Acquire from a server that is read-only now: %v", err)
				}
				if errs := holder.Renew(t.Context(), []driver.Grant{grant}); errs == nil || !errors.Is(errs[0], driver.ErrNotHeld) {
					t.Errorf("Renew on a server that is read-only now: want ErrNotHeld, got: %v", errs)
				}
				await.Event(t, lost, "the loss of a lock on a server that is read-only now is reported")
				if _, err := s.server.SQL(t.Context(), "SET GLOBAL read_only = 0"); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, store, mustAcquire(t, store, request("new")))
			})
		}
	}
}

// TestWithoutDDL: a user without the right to create tables can use tables that exist. If they
// are missing, the error says what to do.
func TestWithoutDDL(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		admin := s.open(t)
		user := "plain_" + s.name
		dsn := user + ":plain@tcp(" + s.server.Addr() + ")/" + s.name
		if s.driver == "pgx" {
			dsn = "postgres://" + user + "@" + s.server.Addr() + "/" + s.name + "?sslmode=disable"
			order(t, admin, "CREATE ROLE "+user+" LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		} else {
			order(t, admin, "CREATE USER "+user+" IDENTIFIED BY 'plain'", "CREATE TABLE unrelated (a INT)", "GRANT SELECT ON unrelated TO "+user)
		}
		db, err := sql.Open(s.driver, dsn)
		check(t, err)
		defer db.Close()
		opts := &sqlsession.Options{Dialect: s.dialect, Scheme: s.scheme, TablePrefix: "mine_"}
		if _, err := sqlsession.New(t.Context(), db, opts); err == nil || !strings.Contains(err.Error(), "sqlsession.Schema") {
			t.Errorf("without tables and without the right to create them: %v", err)
		}
		schema, err := sqlsession.Schema(s.dialect, "mine_")
		check(t, err)
		order(t, admin, schema...)
		if s.driver == "pgx" {
			order(t, admin, "GRANT USAGE, SELECT ON SEQUENCE mine_fence TO "+user, "GRANT SELECT, INSERT, UPDATE ON mine_bound TO "+user)
		} else {
			order(t, admin, "GRANT SELECT, INSERT, UPDATE ON mine_fence TO "+user, "GRANT SELECT, INSERT, UPDATE ON mine_bound TO "+user)
		}
		store, err := sqlsession.New(t.Context(), db, opts)
		check(t, err)
		defer store.Close()
		grant := mustAcquire(t, store, request("x"))
		stop, err := store.Watch(t.Context(), request("x"), func() {})
		check(t, err)
		stop()
		if findings, err := store.Diagnose(t.Context()); err != nil || len(findings) < 4 {
			t.Errorf("Diagnose: %v, %v", findings, err)
		}
		mustRelease(t, store, grant)
	})
}
