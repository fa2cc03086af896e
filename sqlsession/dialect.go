package sqlsession

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Dialect is a kind of database.
type Dialect = sqldb.Dialect

const (
	// MySQL is MySQL 8 or MariaDB 10.6, or newer. It is tested with MariaDB and
	// github.com/go-sql-driver/mysql.
	MySQL = sqldb.MySQL

	// Postgres is PostgreSQL 12 or newer. It is tested with github.com/jackc/pgx/v5.
	Postgres = sqldb.Postgres
)

// dialect is how the connections of one kind of database hold locks: statements as data,
// and functions for what takes several steps.
type dialect struct {
	schema schema
	home   string       // -> the database or schema of {table}, to which locks of the same name belong
	pooler *poolerProbe // nil where a pooler cannot be noticed
	keyOf  func(sum [sha256.Size]byte) any
	list   func(keys []any) string // many keys as the one parameter of server.look

	// examine finds out what the server at the other end is. A server that cannot hold
	// locks is an error that wraps driver.ErrUnsupported.
	examine  func(context.Context, *sql.Conn, *sqldb.Facts, *sqldb.Tables) (*server, error)
	diagnose func(context.Context, *sql.Conn) ([]driver.Finding, error)

	// startTokens returns what is to be added to the tokens that are drawn on this
	// connection, so that they are larger than all before.
	startTokens func(context.Context, *sql.Conn, *server) (shift uint64, err error)
	guard       func(context.Context, *conn) error // sets the guard of a session that has an id
	claimRow    claimFunc
	pinRow      pinFunc
	failureOf   func(error) failure
}

// schema are the texts that create what is missing.
type schema struct {
	fence string // the source of the tokens of Session
	bound string // the table of ForUpdate
	floor string // the row in it that is no lock
}

type (
	// claimFunc raises the token of a row that no transaction has locked, so that the
	// token outlives everything that comes later. It returns errRowLocked if a
	// transaction has, errRowNew if it had to insert the row first, and errFaster if the
	// janitor just deleted it.
	claimFunc func(context.Context, *sql.Conn, *server, *heldLock) (token uint64, err error)

	// pinFunc begins a transaction, locks a row in it whose token is still that, takes
	// its server lock, and notes the id and the guard of the session. It returns
	// errRowLocked or errFaster if it cannot, and leaves the rollback to the caller.
	pinFunc func(ctx context.Context, c *conn, server *server, key lockKey, token uint64) error
)

var dialects = map[Dialect]*dialect{MySQL: &mysqlDialect, Postgres: &postgresDialect}

// server is a server as it was found, and the texts that it takes.
type server struct {
	version string

	// settings keep the server from closing a connection that idles, restore
	// undoes them. Both are empty where that is not to be feared.
	settings, restore []string

	identity   string   // -> what the server calls the session, or readOnlySession
	releaseAll []string // ends every lock of the session
	// findSession reports whether a session {id} that has the {guard} exists. killSession
	// ends it, and no other one: after a restart of the server, another session may have
	// the same id.
	findSession, killSession string
	look                     string // list of keys -> the numbers of those that are free, from 1

	// Session:
	acquire string   // key -> token, 0 or NULL if refused, or readOnlyToken
	draw    string   // -> token, or readOnlyToken
	fence   string   // the name of what the tokens come from
	leap    []string // makes tokens larger than all before; may be empty
	release string   // key

	// ForUpdate:
	readRow string // row -> token, holder, whether the janitor may delete it
	unmark  string // with the key in it; empty if the end of the transaction does it
	table   string // the name of the table
	noWait  string // comes before a statement that is not to wait; may be empty
	now     string // the time in milliseconds
	janitor janitorQueries
}

// What a server answers that has become read-only since the store was opened: its
// locks exclude nothing any more.
const (
	readOnlySession = "0" // in place of what it calls the session
	readOnlyToken   = -1
)

// failure is what an error means.
type failure int

const (
	otherFailure  failure = iota
	retryFailure          // nothing happened, and another attempt may succeed
	pooledFailure         // the session is not the one that it was
)

// shortTimeout is the longest idle timeout that is not left as it is.
const shortTimeout = time.Minute

// isShort reports whether an idle timeout of the server has to be changed. Zero is none.
func isShort(timeout time.Duration) bool { return timeout > 0 && timeout < shortTimeout }

// Schema returns the statements that create what a store needs, for an administrator to
// run where the program itself may not create tables. An empty prefix is the default.
func Schema(dialect Dialect, prefix string) ([]string, error) {
	facts, err := sqldb.FactsOf(dialect)
	if err != nil {
		return nil, err
	}
	d := dialects[dialect]
	if d == nil {
		return nil, fmt.Errorf("%w: %v has no locks that belong to a connection", driver.ErrUnsupported, dialect)
	}
	t, err := sqldb.NewTables(prefix)
	if err != nil {
		return nil, err
	}
	return []string{
		t.Expand(facts.Now, d.schema.fence), t.Expand(facts.Now, d.schema.bound), t.Expand(facts.Now, d.schema.floor),
	}, nil
}

// execAll runs statements one after another.
func execAll(ctx context.Context, conn *sql.Conn, texts ...string) error {
	for _, text := range texts {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// readSettings returns what a query tells of the server, by name in lower case.
func readSettings(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[strings.ToLower(name)] = value
	}
	return settings, rows.Err()
}
