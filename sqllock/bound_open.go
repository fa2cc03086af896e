package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// open finds out what the server is and creates what is missing, all on one
// connection, which becomes the shared link of Session.
func (s *BoundStore) open(ctx context.Context, t tables) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return s.fail(ctx, "open", err)
	}
	err = s.examine(ctx, conn, t)
	if err == nil && s.scheme == Session {
		s.shared, err = s.newShared(ctx, conn)
	}
	if err != nil {
		newLink(conn).discard()
		return s.fail(ctx, "open", err)
	}
	if s.scheme == ForUpdate {
		newLink(conn).giveBack()
		return nil
	}
	s.links[s.shared] = struct{}{}
	return nil
}

func (s *BoundStore) examine(ctx context.Context, conn *sql.Conn, t tables) error {
	var err error
	if s.server, err = s.dialect.examine(ctx, conn, t); err != nil {
		return s.explain(err)
	}
	if pooler, ok := s.dialect.(poolerFinder); ok {
		if err := s.findPooler(ctx, conn, pooler); err != nil {
			return s.explain(err)
		}
	}
	if err := s.create(ctx, conn, t); err != nil {
		return err
	}
	table := t.fence()
	if s.scheme == ForUpdate {
		table = t.bound()
	}
	home, err := s.dialect.home(ctx, conn, table)
	// Unquoted names of tables are the same in upper and lower case.
	s.domain = strings.Join([]string{s.scheme.String(), strings.ToLower(t.locks), home, ""}, "\x00")
	return err
}

// explain names the reason if an error is one that a pooler causes.
func (s *BoundStore) explain(err error) error {
	if s.dialect.boundFailure(err) == pooledFailure {
		return fmt.Errorf("%w: %w", errSharedSession, err)
	}
	return err
}

// create makes what the scheme needs, where it is missing.
func (s *BoundStore) create(ctx context.Context, conn *sql.Conn, t tables) error {
	schema := s.dialect.boundSchema(t)
	if s.scheme == Session {
		return s.createTable(ctx, conn, t.fence(), schema[0])
	}
	if err := s.createTable(ctx, conn, t.bound(), schema[1]); err != nil {
		return err
	}
	due, err := s.sweepDue(ctx, conn)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = conn.ExecContext(ctx, schema[2])
	}
	s.sweeps = due
	return err
}

func (s *BoundStore) createTable(ctx context.Context, conn *sql.Conn, name, text string) error {
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
	return fmt.Errorf("%s is missing and cannot be created: create it by hand, with the statements that BoundSchema returns: %w", name, err)
}

// errSharedSession is why a connection cannot hold locks.
var errSharedSession = fmt.Errorf("%w: the connection leads to a pooler that shares sessions of the server between transactions, such as PgBouncer in transaction mode, where a lock would belong to nobody: connect to the server itself, use a pooler in session mode, or use scheme row",
	driver.ErrUnsupported)

// poolerFinder is a dialect that can be reached through such a pooler.
type poolerFinder interface {
	// tie takes a lock with a random key; tied says whether the session has it
	// still, and untie gives it up.
	tie(context.Context, *sql.Conn) (key any, err error)
	tied(ctx context.Context, conn *sql.Conn, key any) (bool, error)
	untie(ctx context.Context, conn *sql.Conn, key any) error
}

const (
	poolerRounds = 3
	poolerLimit  = 5 * time.Second
)

// findPooler looks whether a session lock is still there in later transactions.
// A pooler has a reason to use another session only if somebody else is in a
// transaction on this one, so a second connection is, where the pool has one.
func (s *BoundStore) findPooler(ctx context.Context, conn *sql.Conn, pooler poolerFinder) error {
	ctx, cancel := context.WithTimeout(ctx, poolerLimit)
	defer cancel()
	key, err := pooler.tie(ctx, conn)
	if err != nil {
		return err
	}
	for range poolerRounds {
		if err := s.crossCheck(ctx, conn, pooler, key); err != nil {
			return err
		}
	}
	return pooler.untie(ctx, conn, key)
}

// crossCheck looks once. A pooler with a single session for both connections lets
// the first wait until the second has ended its transaction.
func (s *BoundStore) crossCheck(ctx context.Context, conn *sql.Conn, pooler poolerFinder, key any) error {
	rival := s.rival(ctx)
	s.sought = rival != nil
	limited, cancel := context.WithTimeout(ctx, poolerLimit/2)
	defer cancel()
	tied, err := pooler.tied(limited, conn, key)
	late := limited.Err() != nil
	if rival == nil {
		late = false
	} else if _, err := rival.ExecContext(ctx, "ROLLBACK"); err != nil {
		late = false
		newLink(rival).discard()
	} else {
		newLink(rival).giveBack()
	}
	if late || err == nil && !tied {
		return errSharedSession
	}
	return err
}

// rival is another connection that is in a transaction; nil if there is none.
func (s *BoundStore) rival(ctx context.Context) *sql.Conn {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := s.db.Conn(short)
	if err != nil {
		return nil
	}
	if err := execAll(short, conn, []string{"START TRANSACTION", "SELECT 1"}); err != nil {
		newLink(conn).discard()
		return nil
	}
	return conn
}

// isShort says whether a timeout of the server is one to be afraid of. Zero is none.
func isShort(timeout time.Duration) bool { return timeout > 0 && timeout < shortTimeout }
