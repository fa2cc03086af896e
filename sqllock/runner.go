package sqllock

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
)

// query is a statement in the form in which it is run.
type query struct {
	text  string
	order []int     // which of the common arguments it takes; nil if just these
	stmt  *sql.Stmt // nil where it is for the driver to prepare it
}

func (q *query) arrange(args []any) []any {
	if q.order == nil {
		return args
	}
	arranged := make([]any, len(q.order))
	for i, n := range q.order {
		arranged[i] = args[n]
	}
	return arranged
}

// parameter is how all dialects write the first to the ninth argument.
var parameter = regexp.MustCompile(`\?([1-9])`)

// dollars is for databases that write arguments as $1.
func dollars(text string) query {
	return query{text: parameter.ReplaceAllString(text, `$$$1`)}
}

// positional is for databases that take arguments in the order of the text.
func positional(text string) query {
	q := query{text: parameter.ReplaceAllString(text, "?"), order: []int{}}
	for _, match := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1]) // one digit: cannot fail
		q.order = append(q.order, n-1)
	}
	return q
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
	args = q.arrange(args)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.ExecContext(ctx, q.text, args...)
	case q.stmt == nil:
		return r.tx.ExecContext(ctx, q.text, args...)
	case r.tx == nil:
		return q.stmt.ExecContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.stmt).ExecContext(ctx, args...)
	}
}

func (r runner) query(ctx context.Context, s statement, args ...any) (*sql.Rows, error) {
	q := &r.queries[s]
	args = q.arrange(args)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.QueryContext(ctx, q.text, args...)
	case q.stmt == nil:
		return r.tx.QueryContext(ctx, q.text, args...)
	case r.tx == nil:
		return q.stmt.QueryContext(ctx, args...)
	default:
		return r.tx.StmtContext(ctx, q.stmt).QueryContext(ctx, args...)
	}
}

// one reads the first row of the answer; sql.ErrNoRows if there is none.
func (r runner) one(ctx context.Context, s statement, args []any, dest ...any) error {
	q := &r.queries[s]
	args = q.arrange(args)
	switch {
	case q.stmt == nil && r.tx == nil:
		return r.db.QueryRowContext(ctx, q.text, args...).Scan(dest...)
	case q.stmt == nil:
		return r.tx.QueryRowContext(ctx, q.text, args...).Scan(dest...)
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
