package sqlsession

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// open finds out what the server is and creates what is missing, all on one
// connection, which becomes the shared conn of Session.
func (s *Store) open(ctx context.Context, t *sqldb.Tables) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return s.fail(ctx, "open", err)
	}
	err = s.examine(ctx, conn, t)
	if err == nil && s.scheme == Session {
		s.shared, err = s.newShared(ctx, conn)
	}
	if err != nil {
		newConn(conn).discard()
		return s.fail(ctx, "open", err)
	}
	if s.scheme == ForUpdate {
		newConn(conn).giveBack()
		return nil
	}
	s.conns[s.shared] = struct{}{}
	return nil
}

func (s *Store) examine(ctx context.Context, conn *sql.Conn, t *sqldb.Tables) error {
	var err error
	if s.server, err = s.dialect.examine(ctx, conn, s.facts, t); err != nil {
		return s.explain(err)
	}
	if s.dialect.pooler != nil {
		if err := s.findPooler(ctx, conn); err != nil {
			return s.explain(err)
		}
	}
	if err := s.create(ctx, conn, t); err != nil {
		return err
	}
	table := t.Fence
	if s.scheme == ForUpdate {
		table = t.Bound
	}
	var home string
	err = conn.QueryRowContext(ctx, strings.ReplaceAll(s.dialect.home, "{table}", table)).Scan(&home)
	// Unquoted names of tables are the same in upper and lower case.
	s.domain = strings.Join([]string{s.scheme.String(), strings.ToLower(t.Locks), home, ""}, "\x00")
	return err
}

// explain names the reason if an error is one that a pooler causes.
func (s *Store) explain(err error) error {
	if s.dialect.failureOf(err) == pooledFailure {
		return fmt.Errorf("%w: %w", errSharedSession, err)
	}
	return err
}

// create makes what the scheme needs, where it is missing.
func (s *Store) create(ctx context.Context, conn *sql.Conn, t *sqldb.Tables) error {
	if s.scheme == Session {
		return s.createTable(ctx, conn, t.Fence, t.Expand(s.facts.Now, s.dialect.schema.fence))
	}
	if err := s.createTable(ctx, conn, t.Bound, t.Expand(s.facts.Now, s.dialect.schema.bound)); err != nil {
		return err
	}
	due, err := s.janitorDue(ctx, conn)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = conn.ExecContext(ctx, t.Expand(s.facts.Now, s.dialect.schema.floor))
	}
	s.cleans = due
	return err
}

func (s *Store) createTable(ctx context.Context, conn *sql.Conn, name, text string) error {
	exists := func() error {
		_, err := conn.ExecContext(ctx, "SELECT 1 FROM "+name+" WHERE 1 = 0")
		return err
	}
	if exists() == nil {
		return nil
	}
	_, err := conn.ExecContext(ctx, text)
	if err == nil || exists() == nil { // somebody else may have created it just now
		return nil
	}
	return fmt.Errorf("%s is missing and cannot be created: create it by hand, with the statements that sqlsession.Schema returns: %w", name, err)
}

// errSharedSession is why a connection cannot hold locks.
var errSharedSession = fmt.Errorf("%w: the connection leads to a pooler that shares sessions of the server between transactions, such as PgBouncer in transaction mode, where a lock would belong to nobody: connect to the server itself, use a pooler in session mode, or use scheme row",
	driver.ErrUnsupported)

// poolerProbe are the texts that show whether later statements reach the same session.
type poolerProbe struct {
	set   string // key: leaves the key in the session
	isSet string // key -> whether the session has it
	clear string
}

const (
	poolerRounds = 3
	poolerLimit  = 5 * time.Second
)

// findPooler looks whether a session lock is still there in later transactions.
// A pooler has a reason to use another session only if somebody else is in a
// transaction on this one, so a second connection is, where the pool has one.
func (s *Store) findPooler(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, poolerLimit)
	defer cancel()
	key := rand.Text()
	var set string
	if err := conn.QueryRowContext(ctx, s.dialect.pooler.set, key).Scan(&set); err != nil {
		return err
	}
	for range poolerRounds {
		if err := s.crossCheck(ctx, conn, key); err != nil {
			return err
		}
	}
	return execAll(ctx, conn, s.dialect.pooler.clear)
}

// crossCheck looks once. A pooler with a single session for both connections lets
// the first wait until the second has ended its transaction.
func (s *Store) crossCheck(ctx context.Context, conn *sql.Conn, key string) error {
	rival := s.rival(ctx)
	s.sought = rival != nil
	limited, cancel := context.WithTimeout(ctx, poolerLimit/2)
	defer cancel()
	var same bool
	err := conn.QueryRowContext(limited, s.dialect.pooler.isSet, key).Scan(&same)
	late := limited.Err() != nil
	if rival == nil {
		late = false
	} else if _, err := rival.ExecContext(ctx, "ROLLBACK"); err != nil {
		late = false
		newConn(rival).discard()
	} else {
		newConn(rival).giveBack()
	}
	if late || err == nil && !same {
		return errSharedSession
	}
	return err
}

// rival is another connection that is in a transaction; nil if there is none.
func (s *Store) rival(ctx context.Context) *sql.Conn {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := s.db.Conn(short)
	if err != nil {
		return nil
	}
	if err := execAll(short, conn, "START TRANSACTION", "SELECT 1"); err != nil {
		newConn(conn).discard()
		return nil
	}
	return conn
}
