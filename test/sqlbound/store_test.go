package sqlbound

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/servers"
)

// database is a kind of server with what tests need to know about it.
type database struct {
	kind    *servers.Kind
	dialect sqllock.Dialect
	driver  string
	dsn     func(addr string) string
	kill    string   // ends a session, by its number
	others  string   // the numbers of all sessions but the one that asks
	room    []string // arguments of a server that lets many connect: forupdate needs a connection for each lock
	short   []string // arguments of a server that closes connections that idle
	holding string   // counts locks that are held on the server, of whatever session
}

var databases = []database{
	{
		kind:    servers.MariaDB,
		dialect: sqllock.MySQL,
		driver:  "mysql",
		dsn:     func(addr string) string { return "dlock:dlock@tcp(" + addr + ")/dlock" },
		kill:    "KILL CONNECTION %s",
		others:  "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'dlock'",
		room:    []string{"--max-connections=600"},
		short:   []string{"--wait-timeout=1", "--idle-transaction-timeout=1"},
		// A lock that is held shows in no table without a plugin; those who
		// use one keep the connection.
		holding: "SELECT count(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'dlock'",
	},
	{
		kind:    servers.Postgres,
		dialect: sqllock.Postgres,
		driver:  "pgx",
		dsn:     func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" },
		kill:    "SELECT pg_terminate_backend(%s)",
		others:  "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
		room:    []string{"-c", "max_connections=600"},
		short:   []string{"-c", "idle_in_transaction_session_timeout=700", "-c", "idle_session_timeout=700"},
		holding: "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
	},
}

var schemes = []sqllock.Scheme{sqllock.ForUpdate, sqllock.Session}

// setup is a server and a scheme to test on it.
type setup struct {
	database
	scheme sqllock.Scheme
	server *servers.Server
}

// each runs a test for every scheme on every server, each on a server of its own.
func each(t *testing.T, test func(t *testing.T, s setup)) {
	eachWith(t, func(d database) []string { return d.room }, test)
}

// eachWith is each on servers with other arguments.
func eachWith(t *testing.T, args func(database) []string, test func(t *testing.T, s setup)) {
	for _, db := range databases {
		for _, scheme := range schemes {
			t.Run(db.kind.Name+"/"+scheme.String(), func(t *testing.T) {
				t.Parallel()
				test(t, setup{db, scheme, servers.Run(t, db.kind, args(db)...)})
			})
		}
	}
}

// open is a pool of its own, as another program has it.
func (s setup) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn(s.server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// store is a store in that pool.
func (s setup) store(t testing.TB, db *sql.DB) *sqllock.BoundStore {
	t.Helper()
	store, err := sqllock.NewBound(t.Context(), db, &sqllock.Options{Dialect: s.dialect, Scheme: s.scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return store
}

// owned is a store with a pool of its own.
type owned struct {
	*sqllock.BoundStore
	db *sql.DB
}

func (s owned) Close() error { return errors.Join(s.BoundStore.Close(), s.db.Close()) }

func openOwned(ctx context.Context, d database, addr string, scheme sqllock.Scheme) (driver.Store, error) {
	db, err := sql.Open(d.driver, d.dsn(addr))
	if err != nil {
		return nil, err
	}
	store, err := sqllock.NewBound(ctx, db, &sqllock.Options{Dialect: d.dialect, Scheme: scheme})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return owned{store, db}, nil
}

// openFromEnv opens the store that a parent process uses.
func openFromEnv(ctx context.Context) (driver.Store, error) {
	scheme, err := sqllock.ParseScheme(os.Getenv(schemeEnv))
	if err != nil {
		return nil, err
	}
	for _, d := range databases {
		if d.kind.Name == os.Getenv(kindEnv) {
			return openOwned(ctx, d, os.Getenv(addrEnv), scheme)
		}
	}
	return nil, fmt.Errorf("%s is not set", kindEnv)
}

// env is what openFromEnv needs.
func (s setup) env() []string {
	return append(os.Environ(), kindEnv+"="+s.kind.Name, addrEnv+"="+s.server.Addr(), schemeEnv+"="+s.scheme.String())
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Holder: driver.Holder{Program: "sqlbound"}}
}

func mustAcquire(t testing.TB, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q: %v", req.Name, err)
	}
	return grant
}

func mustRelease(t testing.TB, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatalf("Release of %q: %v", grant.Name, err)
	}
}

// until waits for something, with a limit.
func until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// killOthers ends all sessions but its own.
func (s setup) killOthers(t testing.TB, admin *sql.DB) {
	t.Helper()
	conn, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, id := range s.sessions(t, conn) {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf(s.kill, id)); err != nil {
			t.Logf("session %s: %v", id, err) // it may have ended by itself
		}
	}
}

// sessions are the numbers of all sessions but that of conn.
func (s setup) sessions(t testing.TB, conn *sql.Conn) (ids []string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), s.others)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// questions counts what the server has been asked so far.
func (s setup) questions(t testing.TB, admin *sql.DB) (n int64) {
	t.Helper()
	text := `SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'`
	if s.driver == "pgx" {
		text = `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	}
	if err := admin.QueryRowContext(t.Context(), text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
