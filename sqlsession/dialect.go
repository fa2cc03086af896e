package sqlsession

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
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

// Scheme says how a connection holds a lock.
type Scheme int

// The schemes. All programs that share a lock have to use the same one.
const (
	// Session holds a lock of the server's own kind: GET_LOCK, or an advisory
	// lock. All locks of a store are on one connection.
	Session Scheme = iota
	// ForUpdate holds a row by a transaction that stays open. Every lock needs a
	// connection of its own.
	ForUpdate
)

var schemes = sqldb.Schemes{Session: "session", ForUpdate: "forupdate"}

func (s Scheme) String() string { return schemes.Name(int(s)) }

// ParseScheme returns the scheme of that name.
func ParseScheme(name string) (Scheme, error) {
	s, err := schemes.Parse(name)
	return Scheme(s), err
}

// dialect is how the connections of one kind of database hold locks.
type dialect struct {
	createFence string // the source of the tokens of Session
	createBound string // the table of ForUpdate
	insertFloor string // the row in it that is no lock

	home         string // -> the database or schema of {table}, to which locks of the same name belong
	findsPoolers bool   // the store notices a pooler; see findPooler
	keyOf        func(sum [sha256.Size]byte) any

	// examine finds out what the server at the other end is, and fails if it cannot hold locks.
	examine  func(context.Context, *sql.Conn, *sqldb.Facts, *sqldb.Tables) (*server, error)
	diagnose func(context.Context, *sql.Conn) ([]driver.Finding, error)

	// numberSpan is how many tokens of Session a number has that the server counts. They
	// are the number times numberSpan and those that follow.
	numberSpan uint64
	// startTokens returns what is to be added to the numbers that are drawn on this
	// connection, so that they are larger than all before.
	startTokens    func(context.Context, *sql.Conn, *server) (shift uint64, err error)
	setFingerprint func(context.Context, *conn) error // of a session that has an id

	// raiseToken raises the token of a row that no transaction has locked by the span of the
	// lock, and commits it, so that it outlives everything that comes later. The row keeps the
	// last token of the span. raiseToken sets the id and the fingerprint of the conn. It returns
	// errRowLocked if a transaction has locked the row, errRowNew if it had to insert the row
	// first, and errLostRace if the janitor has just deleted it.
	raiseToken func(context.Context, *conn, *server, *heldLock) (token uint64, err error)

	// lockRow begins a transaction, locks the row if its token is still the same, and takes
	// its server lock. Otherwise it returns errRowLocked or errLostRace, and leaves the
	// rollback to the caller.
	lockRow func(ctx context.Context, c *conn, server *server, key lockKey, token uint64) error

	isRetryable func(error) bool // nothing happened, and another attempt may succeed
}

var dialects = map[Dialect]*dialect{MySQL: &mysqlDialect, Postgres: &postgresDialect}

// server is a server as it was found, and the statements that it takes.
type server struct {
	// settings keep the server from closing a connection that idles, restore undoes them.
	settings, restore []string

	identity   string   // -> the id of the session, or readOnlySession
	releaseAll []string // ends every lock of the session
	findFree   string   // keys as a list in JSON -> the numbers of the keys that are free, from 1
	// findSession reports whether a session {id} that has the {fingerprint} exists. killSession
	// ends it, and no other one: after a restart of the server, another session may have
	// the same id.
	findSession, killSession string

	// Session:
	acquire string   // key -> number, 0 or NULL if refused, or readOnlyNumber
	fence   string   // the name of what the numbers come from
	skip    []string // makes numbers larger than all before; may be empty
	release string   // key

	// ForUpdate:
	readRow   sqldb.Query // row, key -> token, holder, whether the key is locked
	unlockKey string      // with the key and the fingerprint in it; empty if the rollback does it
	table     string
	noWait    string // comes before a statement that must not wait; may be empty
	now       string // the time in milliseconds
	clean     cleanQueries
}

// errBecameReadOnly: the server became read-only after the store was opened. Its locks exclude
// no other process any more, but another connection may lead to another server.
var errBecameReadOnly = errors.New("the server has become read-only")

// A server that has become read-only answers with these.
const (
	readOnlySession = "0" // in place of the id of the session
	readOnlyNumber  = -1
)

// shortTimeout is the longest idle timeout of a server that the store changes.
const shortTimeout = time.Minute

// isShort reports whether an idle timeout of the server has to be changed. Zero is no timeout.
func isShort(timeout time.Duration) bool { return timeout > 0 && timeout < shortTimeout }

// configure returns what belongs to the options of a store.
func configure(kind Dialect, prefix string) (*sqldb.Facts, *dialect, *sqldb.Tables, error) {
	facts, err := sqldb.FactsOf(kind)
	if err != nil {
		return nil, nil, nil, err
	}
	d := dialects[kind]
	if d == nil {
		return nil, nil, nil, fmt.Errorf("%w: %v has no locks that belong to a connection and no transactions that lock a row; use scheme row",
			driver.ErrUnsupported, kind)
	}
	tables, err := sqldb.NewTables(prefix)
	return facts, d, &tables, err
}

// Schema returns the statements that create what a store needs, for an administrator to
// run where the program itself may not create tables. An empty prefix is the default.
func Schema(dialect Dialect, prefix string) ([]string, error) {
	facts, d, tables, err := configure(dialect, prefix)
	if err != nil {
		return nil, err
	}
	texts := []string{d.createFence, d.createBound, d.insertFloor}
	for i, text := range texts {
		texts[i] = tables.Expand(facts.Now, text)
	}
	return texts, nil
}

func column[T any](rows *sql.Rows, err error) (all []T, _ error) {
	err = sqldb.ScanAll(rows, err, func(scan func(...any) error) error {
		var value T
		err := scan(&value)
		all = append(all, value)
		return err
	})
	return all, err
}

// readSettings returns settings of the server by name.
func readSettings(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	settings := make(map[string]string)
	rows, err := conn.QueryContext(ctx, query)
	return settings, sqldb.ScanAll(rows, err, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		settings[name] = value
		return err
	})
}
