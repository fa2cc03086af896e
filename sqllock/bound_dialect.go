package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// boundDialect is a kind of database whose connections can hold locks.
type boundDialect interface {
	Dialect
	boundExaminer
	boundMarker
	rowLocker

	// calibrate returns what is to be added to tokens of Session that are drawn
	// on this connection, so that they are larger than all before.
	calibrate(context.Context, *sql.Conn, *boundServer) (shift uint64, err error)

	// boundFailure says what the error of a statement means.
	boundFailure(error) boundFailure
}

// boundExaminer knows what a server has to be like.
type boundExaminer interface {
	// boundSchema returns the statements that create the source of tokens of
	// Session, the table of ForUpdate, and the floor in it.
	boundSchema(tables) []string

	// examine finds out what the server at the other end is. A server that
	// cannot hold locks is an error that wraps driver.ErrUnsupported.
	examine(context.Context, *sql.Conn, tables) (*boundServer, error)

	// home is what locks of the same name belong to: the database or schema that
	// a table, or the source of tokens, was found in.
	home(ctx context.Context, conn *sql.Conn, table string) (string, error)

	// diagnoseBound is BoundStore.Diagnose.
	diagnoseBound(context.Context, *sql.Conn) ([]driver.Finding, error)
}

// boundMarker makes the keys of locks of the server's own kind: that of a name
// whose hash is sum, and many of them as one parameter of boundServer.look.
type boundMarker interface {
	mark(sum [sha256.Size]byte) any
	list(marks []any) string
}

// rowLocker locks the rows of ForUpdate.
type rowLocker interface {
	// claimRow raises the token of a row that nobody has locked, so that it
	// outlives everything that comes later. It returns errRowLocked if somebody
	// has, errRowNew if it had to make the row first, and errFaster if it was swept
	// just now.
	claimRow(context.Context, *sql.Conn, *boundServer, *bond) (token uint64, err error)

	// pinRow begins a transaction, locks a row in it whose token is still that,
	// takes its mark, and returns what the server calls the session. It returns
	// errRowLocked or errFaster if it cannot, and leaves the rollback to the
	// caller.
	pinRow(ctx context.Context, conn *sql.Conn, server *boundServer, key lockKey, token uint64) (id string, err error)
}

// boundServer is a server as it was found, and the texts that it takes.
type boundServer struct {
	version string

	// settings keep the server from closing a connection that idles, restore
	// undoes them. Both are empty where that is not to be feared.
	settings, restore []string

	identity   string   // -> what the server calls the session, or readOnlySession
	releaseAll []string // ends every lock of the session
	look       string   // list of marks -> the numbers of those that are free, from 1

	// Session:
	acquire string   // mark -> token, 0 or NULL if refused, or readOnlyToken
	draw    string   // -> token, or readOnlyToken
	fence   string   // the name of what the tokens come from
	leap    []string // makes tokens larger than all before; may be empty
	release string   // mark

	// ForUpdate:
	readRow string // row -> token, holder, whether it may be swept
	unmark  string // with the mark in it; empty if the end of the transaction does it
	table   string // the name of the table
	noWait  string // comes before a statement that is not to wait; may be empty
	now     string // the time in milliseconds
	sweep   boundSweep
}

// What a server answers that has become read-only since the store was opened: its
// locks keep nobody out any more.
const (
	readOnlySession = "0" // in place of what it calls the session
	readOnlyToken   = -1
)

// boundFailure is what an error means.
type boundFailure int

const (
	otherFailure  boundFailure = iota
	retryFailure               // nothing happened, and trying again is worth it
	pooledFailure              // the session is not the one that it was
)

// shortTimeout is the longest idle timeout that is not left as it is.
const shortTimeout = time.Minute

// BoundSchema returns the statements that create what a [BoundStore] needs, for
// those who run them by hand because the program may not. An empty prefix is
// [DefaultTablePrefix].
func BoundSchema(dialect Dialect, prefix string) ([]string, error) {
	bound, ok := dialect.(boundDialect)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	tables, err := newTables(prefix)
	if err != nil {
		return nil, err
	}
	return bound.boundSchema(tables), nil
}

// fence and bound are the names of what a BoundStore needs: the source of
// tokens of Session, and the table of ForUpdate.
func (t tables) fence() string { return t.prefixed("fence") }
func (t tables) bound() string { return t.prefixed("bound") }

func (t tables) prefixed(name string) string { return t.locks[:len(t.locks)-len("locks")] + name }

// execAll runs statements one after another.
func execAll(ctx context.Context, conn *sql.Conn, texts []string) error {
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
