package sqlsession_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// database is a kind of server and what tests need to know about it.
type database struct {
	kind    *servers.Kind
	dialect sqlsession.Dialect
	driver  string
	home    string // the database that every server has
	dsn     func(addr, database string) string
	shared  *sharedServer
	kill    string   // ends a session, by its number
	others  string   // the numbers of all sessions in the database but the one that asks
	room    []string // arguments of a server that lets many connect: forupdate needs a connection for each lock
	short   []string // arguments of a server that closes connections that idle
	holding string   // counts locks that are held in the database, of whatever session

	// attempts says whether a request asks for a lock of the scheme session, or
	// gives one up: it is prepared, so that the text is not in it.
	attempts func(request []byte) bool
}

var databases = []database{
	{
		kind:    servers.MariaDB,
		dialect: sqlsession.MySQL,
		driver:  "mysql",
		home:    "dlock",
		dsn:     func(addr, database string) string { return "dlock:dlock@tcp(" + addr + ")/" + database },
		shared:  new(sharedServer),
		kill:    "KILL CONNECTION %s",
		others:  "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()",
		room:    []string{"--max-connections=600"},
		short:   []string{"--wait-timeout=1", "--idle-transaction-timeout=1"},
		// Without a plugin no table shows locks, but a holder keeps its connection.
		holding: "SELECT count(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()",
		// The key is in it.
		attempts: func(request []byte) bool { return bytes.Contains(request, []byte("dlock_")) },
	},
	{
		kind:    servers.Postgres,
		dialect: sqlsession.Postgres,
		driver:  "pgx",
		home:    "postgres",
		dsn: func(addr, database string) string {
			return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable"
		},
		shared: new(sharedServer),
		kill:   "SELECT pg_terminate_backend(%s)",
		others: "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()",
		room:   []string{"-c", "max_connections=600"},
		short:  []string{"-c", "idle_in_transaction_session_timeout=700", "-c", "idle_session_timeout=700"},
		// One that is shared is held by every store of the scheme session.
		holding: "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid <> x'646c6b02'::bit(32)::bigint::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
		// It has one parameter, of eight bytes.
		attempts: func(request []byte) bool { return bytes.Contains(request, []byte{0, 1, 0, 0, 0, 8}) },
	},
}

var schemes = []sqlsession.Scheme{sqlsession.ForUpdate, sqlsession.Session}

// setup is a database on a server, and a scheme to test in it.
type setup struct {
	database
	scheme sqlsession.Scheme
	server *servers.Server
	name   string // of the database
}

// alone is the database that a server of the test's own has.
func (d database) alone(scheme sqlsession.Scheme, server *servers.Server) setup {
	return setup{d, scheme, server, d.home}
}

// among is a database of the test's own on the server that all share.
func (d database) among(t testing.TB, scheme sqlsession.Scheme) setup {
	t.Helper()
	server, err := d.shared.start(d.kind, d.room...)
	check(t, err)
	name := fmt.Sprintf("test%d", d.shared.count.Add(1))
	if _, err := d.alone(scheme, server).open(t).ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return setup{d, scheme, server, name}
}

// onPostgres is a database of the test's own on the PostgreSQL that all share.
func onPostgres(t *testing.T, scheme sqlsession.Scheme) setup {
	t.Helper()
	for _, d := range databases {
		if d.dialect == sqlsession.Postgres {
			return d.among(t, scheme)
		}
	}
	t.Fatal("no PostgreSQL")
	return setup{}
}

// each runs a test for every scheme on every server, each in a database of its own, beside
// other tests.
func each(t *testing.T, test func(t *testing.T, s setup)) {
	t.Helper()
	t.Parallel()
	eachSetup(t, database.among, test)
}

// eachOn is each for one scheme.
func eachOn(t *testing.T, scheme sqlsession.Scheme, test func(t *testing.T, s setup)) {
	t.Helper()
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, d.among(t, scheme))
		})
	}
}

// eachOf is each for one kind of server.
func eachOf(t *testing.T, dialect sqlsession.Dialect, test func(t *testing.T, s setup)) {
	t.Helper()
	each(t, func(t *testing.T, s setup) {
		if s.dialect == dialect {
			test(t, s)
		}
	})
}

// crash kills the server and starts it again.
func (s setup) crash(t testing.TB) {
	t.Helper()
	check(t, errors.Join(s.server.Kill(), s.server.Restart()))
}

// eachAlone is each on servers of their own, for what others would notice.
func eachAlone(t *testing.T, test func(t *testing.T, s setup)) {
	t.Helper()
	eachWith(t, func(d database) []string { return d.room }, test)
}

// eachWith is eachAlone with other arguments for the servers.
func eachWith(t *testing.T, args func(database) []string, test func(t *testing.T, s setup)) {
	t.Helper()
	t.Parallel()
	eachSetup(t, func(d database, t testing.TB, scheme sqlsession.Scheme) setup {
		return d.alone(scheme, servers.Run(t, d.kind, args(d)...))
	}, test)
}

// eachServer is eachWith for both schemes on one server, one after the other.
func eachServer(t *testing.T, start func(t *testing.T, d database) *servers.Server, test func(t *testing.T, s setup)) {
	t.Helper()
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			server := start(t, d)
			for _, scheme := range schemes {
				t.Run(scheme.String(), func(t *testing.T) { test(t, d.alone(scheme, server)) })
			}
		})
	}
}

func eachSetup(t *testing.T, prepare func(database, testing.TB, sqlsession.Scheme) setup, test func(t *testing.T, s setup)) {
	t.Helper()
	for _, d := range databases {
		for _, scheme := range schemes {
			t.Run(d.kind.Name+"/"+scheme.String(), func(t *testing.T) {
				t.Parallel()
				test(t, prepare(d, t, scheme))
			})
		}
	}
}

// open is a pool of its own, as another program has it.
func (s setup) open(t testing.TB) *sql.DB {
	t.Helper()
	return s.openDB(t, s.server.Addr())
}

// openDB is open at another address.
func (s setup) openDB(t testing.TB, addr string) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn(addr, s.name))
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// store is a store in that pool.
func (s setup) store(t testing.TB, db *sql.DB) *sqlsession.Store {
	t.Helper()
	store, err := sqlsession.New(t.Context(), db, &sqlsession.Options{Dialect: s.dialect, Scheme: s.scheme})
	check(t, err)
	closeAfter(t, store)
	return store
}

// storeAt is a store of its own at another address.
func (s setup) storeAt(t testing.TB, addr string) driver.Store {
	t.Helper()
	store, err := s.openAt(t.Context(), addr)
	check(t, err)
	closeAfter(t, store)
	return store
}

// owned is a store with a pool of its own.
type owned struct {
	*sqlsession.Store
	db *sql.DB
}

func (s owned) Close() error { return errors.Join(s.Store.Close(), s.db.Close()) }

// openOwned opens the store as another program would.
func (s setup) openOwned(ctx context.Context) (driver.Store, error) {
	return s.openAt(ctx, s.server.Addr())
}

// openAt is openOwned at another address.
func (s setup) openAt(ctx context.Context, addr string) (driver.Store, error) {
	return openDSN(ctx, s.database, s.dsn(addr, s.name), s.scheme)
}

func openDSN(ctx context.Context, d database, dsn string, scheme sqlsession.Scheme) (driver.Store, error) {
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		return nil, err
	}
	store, err := sqlsession.New(ctx, db, &sqlsession.Options{Dialect: d.dialect, Scheme: scheme})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return owned{store, db}, nil
}

// url says what openURL needs to open the store.
func (s setup) url() string {
	return strings.Join([]string{s.kind.Name, s.scheme.String(), s.dsn(s.server.Addr(), s.name)}, " ")
}

// openURL opens the store that a setup describes, as another program would.
func openURL(ctx context.Context, url string) (driver.Store, error) {
	words := strings.SplitN(url, " ", 3)
	scheme, err := sqlsession.ParseScheme(words[1])
	if err != nil {
		return nil, err
	}
	for _, d := range databases {
		if d.kind.Name == words[0] {
			return openDSN(ctx, d, words[2], scheme)
		}
	}
	return nil, fmt.Errorf("no database %s", words[0])
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// order runs statements.
func order(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := on.ExecContext(context.Background(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func closeAfter(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// mayGet waits until the store can acquire the lock, and releases it.
func mayGet(t testing.TB, store driver.Store, req driver.Request, what string) {
	t.Helper()
	await.Until(t, what, func() bool {
		req.Owner = driver.NewOwner()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		grant, err := store.Acquire(ctx, req)
		return err == nil && store.Release(t.Context(), grant) == nil
	})
}

// losable is a request that says when its lock is lost.
func losable(name string) (req driver.Request, lost <-chan struct{}) {
	req = request(name)
	reported := make(chan struct{})
	req.Lost = func() { close(reported) }
	return req, reported
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: 10 * await.Limit, Holder: driver.Holder{Program: "sqlsession"}}
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

// mustRenew renews locks that must be held.
func mustRenew(t testing.TB, store driver.Store, grants ...driver.Grant) {
	t.Helper()
	if errs := store.Renew(context.Background(), grants); errs != nil {
		t.Errorf("Renew: %v", errors.Join(errs...))
	}
}

// killOthers ends all sessions in the database but its own.
func (s setup) killOthers(t testing.TB, admin *sql.DB) {
	t.Helper()
	conn, err := admin.Conn(t.Context())
	check(t, err)
	defer conn.Close()
	killed := s.sessions(t, conn)
	for _, id := range killed {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf(s.kill, id)); err != nil {
			t.Logf("session %s: %v", id, err) // it may have ended by itself
		}
	}
	await.Until(t, "the killed sessions have ended", func() bool { // a server answers before that
		return !slices.ContainsFunc(s.sessions(t, conn), func(id string) bool { return slices.Contains(killed, id) })
	})
}

// sessions are the numbers of all sessions in the database but that of conn.
func (s setup) sessions(t testing.TB, conn *sql.Conn) (ids []string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), s.others)
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		check(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	check(t, rows.Err())
	return ids
}

// questions counts what the server has been asked so far.
func (s setup) questions(t testing.TB, admin *sql.DB) (n int64) {
	t.Helper()
	text := `SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'`
	if s.driver == "pgx" {
		text = `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	}
	check(t, admin.QueryRowContext(t.Context(), text).Scan(&n))
	return n
}
