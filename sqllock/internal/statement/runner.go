package statement

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// query is a statement in the form in which it is run.
type query struct {
	sqldb.Query
	stmt *sql.Stmt // nil where the driver prepares it, or nothing does
}

// Prepare prepares all statements.
func (s *Set) Prepare(ctx context.Context, db *sql.DB) (err error) {
	for id := range s {
		if q := &s[id]; q.Text != "" && q.stmt == nil {
			if q.stmt, err = db.PrepareContext(ctx, q.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes what was prepared.
func (s *Set) Close() error {
	var errs []error
	for id := range s {
		if q := &s[id]; q.stmt != nil {
			errs = append(errs, q.stmt.Close())
			q.stmt = nil
		}
	}
	return errors.Join(errs...)
}

// Runner runs statements, each on its own or all in a transaction. The
// comment of a statement's constant lists its arguments.
type Runner struct {
	set *Set
	on  interface { // a *sql.DB or a *sql.Tx
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

// On returns a runner of statements each on its own.
func (s *Set) On(db *sql.DB) Runner { return Runner{s, db} }

// In returns a runner of statements in a transaction.
func (s *Set) In(tx *sql.Tx) Runner { return Runner{s, tx} }

// prepared returns the statement for this runner; nil if it is not prepared.
func (r Runner) prepared(ctx context.Context, q *query) *sql.Stmt {
	if tx, ok := r.on.(*sql.Tx); ok && q.stmt != nil {
		return tx.StmtContext(ctx, q.stmt)
	}
	return q.stmt
}

// CreateTables creates the tables that are missing.
func (r Runner) CreateTables(ctx context.Context, facts *sqldb.Facts, tables *sqldb.Tables) error {
	return sqldb.ExecAll(ctx, r.on, Schema(facts, tables)...)
}

// Exec runs a statement that answers nothing.
func (r Runner) Exec(ctx context.Context, id ID, args ...any) (sql.Result, error) {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		return stmt.ExecContext(ctx, q.Arrange(args...)...)
	}
	return r.on.ExecContext(ctx, q.Text, q.Arrange(args...)...)
}

// Changed runs a statement and reports whether it changed anything.
func (r Runner) Changed(ctx context.Context, id ID, args ...any) (bool, error) {
	result, err := r.Exec(ctx, id, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// One reads the first row of the answer. The error is sql.ErrNoRows if there is none.
func (r Runner) One(ctx context.Context, id ID, args []any, dest ...any) error {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		return stmt.QueryRowContext(ctx, q.Arrange(args...)...).Scan(dest...)
	}
	return r.on.QueryRowContext(ctx, q.Text, q.Arrange(args...)...).Scan(dest...)
}

// Each calls fn for each row of the answer.
func (r Runner) Each(ctx context.Context, id ID, args []any, fn func(scan func(...any) error) error) error {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		rows, err := stmt.QueryContext(ctx, q.Arrange(args...)...)
		return sqldb.ScanAll(rows, err, fn)
	}
	rows, err := r.on.QueryContext(ctx, q.Text, q.Arrange(args...)...)
	return sqldb.ScanAll(rows, err, fn)
}

// Key identifies a row in an answer: an owner is of one acquisition only.
type Key struct{ Name, Owner string }

// Keys collects the answer of a statement. It is not nil unless there is an error.
func (r Runner) Keys(ctx context.Context, id ID, list string) (map[Key]bool, error) {
	keys := make(map[Key]bool)
	err := r.Each(ctx, id, []any{list}, func(scan func(...any) error) error {
		var key Key
		err := scan(&key.Name, &key.Owner)
		keys[key] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// TakeReturning runs an attempt in a database that answers an update with its rows. It
// returns the token, zero if the attempt was refused.
func TakeReturning(ctx context.Context, run Runner, id ID, args ...any) (token uint64, err error) {
	if err = run.One(ctx, id, args, &token); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return token, err
}

// TakeInsertID runs an attempt in MySQL, where the token is the insert id. How many rows
// changed is not asked: whether a row that is the same as before counts is a setting of
// the connection.
func TakeInsertID(ctx context.Context, run Runner, id ID, args ...any) (token uint64, err error) {
	result, err := run.Exec(ctx, id, args...)
	if err != nil {
		return 0, err
	}
	last, err := result.LastInsertId()
	return uint64(last), err
}

// RenewReturning runs a renewal in a database that answers an update with its rows. It
// returns which of the n in the list were renewed; nil is all.
func RenewReturning(ctx context.Context, run Runner, id ID, list string, n int) (map[Key]bool, error) {
	keys, err := run.Keys(ctx, id, list)
	if len(keys) == n {
		keys = nil
	}
	return keys, err
}

// RenewThenRead is RenewReturning for MySQL. If not all rows have changed, it reads which locks
// are held: a lock that was renewed twice within a millisecond does not change.
func RenewThenRead(ctx context.Context, run Runner, id ID, list string, n int) (map[Key]bool, error) {
	result, err := run.Exec(ctx, id, list)
	if err != nil {
		return nil, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == int64(n) {
		return nil, err
	}
	return run.Keys(ctx, Renewed, list)
}
