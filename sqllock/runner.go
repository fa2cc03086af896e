package sqllock

import (
	"context"
	"database/sql"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// query is a statement in the form in which it is run.
type query struct {
	sqldb.Query
	stmt *sql.Stmt // nil where it is for the driver to prepare it
}

// runner runs statements, each on its own or all in a transaction. Arguments
// are those that the statement's constant lists.
type runner struct {
	queries *[statementCount]query
	db      *sql.DB
	tx      *sql.Tx // nil if each is on its own
}

func (r runner) exec(ctx context.Context, s statement, args ...any) (sql.Result, error) {
	q := &r.queries[s]
	args = q.Arrange(args...)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.ExecContext(ctx, q.Text, args...)
	case q.stmt == nil:
		return r.tx.ExecContext(ctx, q.Text, args...)
	case r.tx == nil:
		return q.stmt.ExecContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.stmt).ExecContext(ctx, args...)
	}
}

func (r runner) query(ctx context.Context, s statement, args ...any) (*sql.Rows, error) {
	q := &r.queries[s]
	args = q.Arrange(args...)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.QueryContext(ctx, q.Text, args...)
	case q.stmt == nil:
		return r.tx.QueryContext(ctx, q.Text, args...)
	case r.tx == nil:
		return q.stmt.QueryContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.stmt).QueryContext(ctx, args...)
	}
}

// one reads the first row of the answer; sql.ErrNoRows if there is none.
func (r runner) one(ctx context.Context, s statement, args []any, dest ...any) error {
	q := &r.queries[s]
	args = q.Arrange(args...)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.QueryRowContext(ctx, q.Text, args...).Scan(dest...)
	case q.stmt == nil:
		return r.tx.QueryRowContext(ctx, q.Text, args...).Scan(dest...)
	case r.tx == nil:
		return q.stmt.QueryRowContext(ctx, args...).Scan(dest...)
	default:
		return r.tx.StmtContext(ctx, q.stmt).QueryRowContext(ctx, args...).Scan(dest...)
	}
}

// each calls fn for each row of the answer.
func (r runner) each(ctx context.Context, s statement, args []any, fn func(scan func(...any) error) error) error {
	rows, err := r.query(ctx, s, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close() // what a statement writes is committed here
}

// changed runs a statement and says whether it changed anything.
func (r runner) changed(ctx context.Context, s statement, args ...any) (bool, error) {
	result, err := r.exec(ctx, s, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
