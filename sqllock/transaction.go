package sqllock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// inTx runs fn in a transaction. With SQLite fn starts with a statement that
// writes, which takes the write lock at once whatever kind of transaction the
// driver begins. All statements use the context of the transaction: one that is
// interrupted ends it, and none may run after it.
func (s *Store) inTx(ctx context.Context, fn func(statement.Runner) error) error {
	tx, release, err := s.beginTx(ctx)
	if err != nil {
		return err
	}
	finish := func(end func() error) error {
		return s.finish(ctx, func() error {
			defer release()
			return end()
		})
	}
	if s.dialect.begin != "" {
		_, err = tx.ExecContext(ctx, s.dialect.begin)
	}
	if err == nil {
		err = fn(s.statements.In(tx))
	}
	if err != nil {
		_ = finish(tx.Rollback) // the first error says more
		return err
	}
	err = finish(tx.Commit)
	if why := s.facts.Classify(err); err != nil && (!why.Retry || why.Ended) {
		return &unsureError{err}
	}
	return err
}

// finish ends a transaction. If the driver ignores the context here and the server is
// silent, the caller leaves, and the connection is lost when TCP gives it up.
func (s *Store) finish(ctx context.Context, end func() error) error {
	if !s.dialect.ignoresContext {
		return end()
	}
	err, left := detach.Call(ctx, detach.Go, end)
	if left != nil {
		return ctx.Err()
	}
	return err
}

// unsureError says that a transaction may have been committed or not.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

// isRetryable reports whether a call failed because of other transactions, and has changed
// nothing.
func (s *Store) isRetryable(err error) bool {
	_, unsure := errors.AsType[*unsureError](err)
	return !unsure && s.facts.Classify(err).Retry
}

// beginTx begins a transaction; the caller calls release when it has ended.
//
// The server has to end a transaction whose process vanishes or is stopped in the middle, or
// the rows would stay locked for as long as the server waits for its clients. Where
// that is a setting of the connection, it is lifted after the transaction. The connection
// is the program's own, so it goes back to the pool as it was, or not at all.
func (s *Store) beginTx(ctx context.Context) (tx *sql.Tx, release func(), err error) {
	if s.dialect.limitIdle == "" {
		tx, err = s.db.BeginTx(ctx, s.dialect.tx)
		return tx, func() {}, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		if _, err := conn.ExecContext(ctx, s.dialect.unlimitIdle); err != nil {
			_ = conn.Raw(sqldb.CloseConn)
		}
		_ = conn.Close() // it may be closed already
	}
	if _, err = conn.ExecContext(ctx, s.dialect.limitIdle); err == nil {
		tx, err = conn.BeginTx(ctx, s.dialect.tx)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return tx, release, nil
}
