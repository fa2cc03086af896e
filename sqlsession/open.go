package sqlsession

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// open examines the server and creates what is missing, all on one connection, which becomes
// the main conn of Session.
func (s *Store) open(ctx context.Context) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return err
	}
	err = s.examine(ctx, conn)
	if err == nil && s.scheme == Session {
		s.main, err = s.newMain(ctx, conn)
	}
	switch {
	case err != nil:
		sqldb.Discard(conn)
	case s.scheme == ForUpdate:
		_ = conn.Close()
	default:
		s.conns[s.main] = struct{}{}
	}
	return err
}

func (s *Store) examine(ctx context.Context, conn *sql.Conn) (err error) {
	t := s.tables
	if s.server, err = s.dialect.examine(ctx, conn, s.facts, t); err == nil && s.dialect.findsPoolers {
		err = s.findPooler(ctx, conn)
	}
	switch {
	case isPooledFailure(err):
		return fmt.Errorf("%w: %w", errSharedSession, err)
	case err != nil:
		return err
	}
	table, create := t.Fence, s.dialect.createFence
	if s.scheme == ForUpdate {
		table, create = t.Bound, s.dialect.createBound
	}
	if err := s.createTable(ctx, conn, table, t.Expand(s.facts.Now, create)); err != nil {
		return err
	}
	if s.scheme == ForUpdate {
		due, interval := s.bind(janitorDue, sqldb.JanitorInterval.Milliseconds())
		err = conn.QueryRowContext(ctx, due, interval...).Scan(&s.janitorFirst)
		if errors.Is(err, sql.ErrNoRows) {
			err = sqldb.ExecAll(ctx, conn, t.Expand(s.facts.Now, s.dialect.insertFloor))
		}
		if err != nil {
			return err
		}
	}
	var home string
	err = conn.QueryRowContext(ctx, strings.ReplaceAll(s.dialect.home, "{table}", table)).Scan(&home)
	// PostgreSQL has unquoted names in lower case: prefixes that differ in case only share locks.
	s.domain = strings.Join([]string{s.scheme.String(), strings.ToLower(t.Locks), home, ""}, "\x00")
	return err
}

// createTable creates a table or a sequence that does not exist.
func (s *Store) createTable(ctx context.Context, conn *sql.Conn, name, text string) error {
	exists := "SELECT 1 FROM " + name + " WHERE 1 = 0"
	if sqldb.ExecAll(ctx, conn, exists) == nil {
		return nil
	}
	err := sqldb.ExecAll(ctx, conn, text)
	if err == nil || sqldb.ExecAll(ctx, conn, exists) == nil { // another program may have created it just now
		return nil
	}
	if errors.Is(s.facts.Classify(err).Kind, driver.ErrDenied) {
		return fmt.Errorf("%s is missing and cannot be created: create it by hand, with the statements that sqlsession.Schema returns: %w", name, err)
	}
	return fmt.Errorf("creating %s: %w", name, err)
}

// errSharedSession is why a connection cannot hold locks.
var errSharedSession = fmt.Errorf("%w: the connection leads to a pooler that shares sessions of the server between transactions, such as PgBouncer in transaction mode, where a lock would belong to no client: connect to the server itself, use a pooler in session mode, or use scheme row",
	driver.ErrUnsupported)

const (
	poolerRounds = 3
	poolerLimit  = 5 * time.Second
	// answerLimit is how much longer an answer takes if a pooler blocks the client.
	answerLimit = 500 * time.Millisecond

	// A setting of the session lives as long as a lock of the session would. If it is left
	// behind, it disturbs no other program.
	tagSession   = `SELECT set_config('dlock.session', $1 || pg_backend_pid(), false)`
	hasTag       = `SELECT coalesce(current_setting('dlock.session', true), '') = $1 || pg_backend_pid()`
	untagSession = `SET dlock.session = ''`
)

// findPooler checks whether later transactions reach the same session. A pooler has a reason
// to use another session only while a second client is in a transaction on this one, so
// findPooler is that client, if the pool has a second connection. A pooler that has a single
// session for both blocks the first client each time; a server that is slow does not.
func (s *Store) findPooler(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, poolerLimit)
	defer cancel()
	key, start := rand.Text(), time.Now()
	var set string
	if err := conn.QueryRowContext(ctx, tagSession, key).Scan(&set); err != nil {
		return err
	}
	limit := answerLimit + 2*time.Since(start)
	for blocked, round := 0, 1; round <= poolerRounds; round++ {
		same, late, err := s.askSession(ctx, conn, key, limit)
		if late {
			blocked++
		}
		if err != nil || !same || blocked == poolerRounds {
			return cmp.Or(err, errSharedSession)
		}
	}
	return sqldb.ExecAll(ctx, conn, untagSession)
}

// askSession reports whether the session is the same. late reports that there was no answer within
// limit: then the second client ends its transaction, which a pooler may wait for.
func (s *Store) askSession(ctx context.Context, conn *sql.Conn, key string, limit time.Duration) (same, late bool, err error) {
	second := s.secondConn(ctx)
	s.poolerChecked = second != nil
	answer := make(chan error, 1)
	go func() { answer <- conn.QueryRowContext(ctx, hasTag, key).Scan(&same) }()
	if second != nil {
		for start := time.Now(); len(answer) == 0 && time.Since(start) < limit; {
			_ = backoff.Sleep(ctx, time.Millisecond)
		}
		late = len(answer) == 0
		defer func() { _ = second.Close() }()
		if sqldb.ExecAll(ctx, second, "ROLLBACK") != nil {
			sqldb.Discard(second)
		}
	}
	err = <-answer
	return same, late, err
}

// secondConn returns another connection, in a transaction, or nil if the pool has none.
func (s *Store) secondConn(ctx context.Context) *sql.Conn {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := s.db.Conn(short)
	if err != nil {
		return nil
	}
	if err := sqldb.ExecAll(short, conn, "START TRANSACTION", "SELECT 1"); err != nil {
		sqldb.Discard(conn)
		return nil
	}
	return conn
}
