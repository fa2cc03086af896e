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
	placeOf      func(sum [sha256.Size]byte) any // see lockKey; nil if the server has no shared locks

	// examine finds out what the server at the other end is, and fails if it cannot hold locks.
	examine func(context.Context, *sql.Conn, *sqldb.Facts, *sqldb.Tables) (*server, error)
	checks  []func(context.Context, sqldb.Queryer) (driver.Finding, error) // of Diagnose

	// startTokens returns what is to be added to the tokens that are drawn on this
	// connection, so that they are larger than all before.
	startTokens    func(context.Context, *Store, *sql.Conn) (shift uint64, err error)
	setFingerprint func(context.Context, *conn) error // of a session that has an id

	// raiseToken raises the token of a row, commits it, and returns it. It sets the id and the
	// fingerprint of the conn. It returns errRowLocked if a transaction has locked the row, errRowNew
	// if it had to insert the row first, and errLostRace if the janitor has just deleted it.
	raiseToken func(context.Context, *Store, *conn, *heldLock) (token uint64, err error)

	// lockRow begins a transaction, locks the row if its token is still the same, and takes
	// its server lock. Otherwise it returns errRowLocked or errLostRace, and leaves the
	// rollback to the caller.
	lockRow func(ctx context.Context, s *Store, c *conn, key lockKey, token uint64) error
}

var dialects = map[Dialect]*dialect{MySQL: &mysqlDialect, Postgres: &postgresDialect}

// server is a server as it was found, and the statements that it takes.
type server struct {
	// settings keep the server from closing a connection that idles, restore undoes them.
	settings, restore []string

	identity   string   // -> the id of the session, or readOnlySession
	releaseAll []string // ends every lock of the session
	// findSession reports whether a session {id} that has the {fingerprint} exists, or may exist.
	// killSession ends it, and no other one: after a restart of the server, or on another server,
	// another session may have the same id.
	findSession, killSession string

	// Session:
	texts sessionTexts
	skip  []string // makes numbers larger than all before; may be empty

	// ForUpdate:
	readRow   sqldb.Query // row, key -> token, holder, whether the key is locked
	unlockKey string      // with the key and the fingerprint in it; empty if the rollback does it
	noWait    string      // comes before a statement that must not wait; may be empty
	// limitIdle makes the server end a janitor whose process stops in the middle. unlimitIdle ends it.
	limitIdle, unlimitIdle string
}

// sessionStatement is a statement of Session, which each main conn prepares.
type sessionStatement int

const (
	stmtAcquire  sessionStatement = iota // key -> token, 0 or NULL if refused, or answerReadOnly, or answerShared
	stmtRelease                          // key
	stmtFindFree                         // keys as a list in JSON -> the positions of the keys that are free, from 1; also of ForUpdate
	// Of servers that have shared locks:
	stmtAnnounce      // comes before the first shared lock of a session; see sharesLock
	stmtAcquireShared // key, key of places -> token, 0 or NULL if refused
	stmtReleaseShared // key
	stmtFindShareable // keys and keys of places as lists in JSON -> the positions of those that a shared lock may be had of, from 1
	stmtDowngrade     // key -> whether it did
	stmtTakePlace     // key of places
	stmtLeavePlace    // key of places
	sessionStatements
)

// sessionTexts are empty where the server has no such statement.
type sessionTexts [sessionStatements]string

// errBecameReadOnly: the server became read-only after the store was opened. Its locks exclude
// no other process any more, but another connection may lead to another server.
var errBecameReadOnly = errors.New("the server has become read-only")

// A server that has become read-only answers with these.
const (
	readOnlySession = "0" // in place of the id of the session
	answerReadOnly  = -1
)

// answerShared is the answer of a server whose shared locks refuse an exclusive one.
const answerShared = -2

// shortTimeout is the longest idle timeout of a server that the store changes.
const shortTimeout = time.Minute

// isShort reports whether an idle timeout of the server has to be changed. Zero is no timeout.
func isShort(timeout time.Duration) bool { return timeout > 0 && timeout < shortTimeout }

// configure returns what belongs to the options of a store.
func configure(kind Dialect, prefix string) (*sqldb.Facts, *dialect, *sqldb.Tables, error) {
	facts, tables, err := sqldb.Configure(kind, prefix)
	d := dialects[kind]
	if err == nil && d == nil {
		err = fmt.Errorf("%w: %v has no locks that belong to a connection and no transactions that lock a row; use scheme row",
			driver.ErrUnsupported, kind)
	}
	return facts, d, tables, err
}

// Schema returns the statements that create the tables of a store, for an administrator to
// run where the program itself may not. An empty prefix is the default.
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
	err = sqldb.Each(func() (*sql.Rows, error) { return rows, err }, func(scan func(...any) error) error {
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
	read := func() (*sql.Rows, error) { return conn.QueryContext(ctx, query) }
	return settings, sqldb.Each(read, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		settings[name] = value
		return err
	})
}
