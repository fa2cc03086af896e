package statement

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Runner runs statements, each on its own or all in a transaction. The
// comment of a statement's constant lists its arguments.
type Runner struct {
	set *Set
	on  sqldb.Queryer
}

// On returns a runner of statements on a database, or in a transaction.
func (s *Set) On(db sqldb.Queryer) Runner { return Runner{s, db} }

// prepared returns the statement for this runner; nil if it is not prepared.
func (r Runner) prepared(ctx context.Context, q *query) *sql.Stmt {
	switch on := r.on.(type) {
	case *sql.Tx:
		if q.stmt != nil {
			return on.StmtContext(ctx, q.stmt)
		}
	case *sql.Conn: // a statement chooses its connection itself
		return nil
	}
	return q.stmt
}

// CreateTables creates the tables that are missing.
func (r Runner) CreateTables(ctx context.Context, facts *sqldb.Facts, tables *sqldb.Tables) error {
	return sqldb.ExecAll(ctx, r.on, Schema(facts, tables)...)
}

// Exec runs a statement that returns no rows.
func (r Runner) Exec(ctx context.Context, id ID, args ...any) (sql.Result, error) {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		if result, err := stmt.ExecContext(ctx, q.Arrange(args...)...); !isTooMany(err) { // on this connection
			return result, err
		}
	}
	text, args := q.bind(args)
	return r.on.ExecContext(ctx, text, args...)
}

// Begin comes before all other statements of a transaction.
func (r Runner) Begin(ctx context.Context) error {
	if r.set[Begin].Text == "" {
		return nil
	}
	_, err := r.Exec(ctx, Begin)
	return err
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

// One reads the first row that a statement returns. Without a row the error is sql.ErrNoRows.
func (r Runner) One(ctx context.Context, id ID, args []any, dest ...any) error {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		if err := stmt.QueryRowContext(ctx, q.Arrange(args...)...).Scan(dest...); !isTooMany(err) {
			return err
		}
	}
	text, args := q.bind(args)
	return r.on.QueryRowContext(ctx, text, args...).Scan(dest...)
}

// Each calls fn for each row that a statement returns.
func (r Runner) Each(ctx context.Context, id ID, args []any, fn func(scan func(...any) error) error) error {
	query := func() (*sql.Rows, error) {
		q := &r.set[id]
		if stmt := r.prepared(ctx, q); stmt != nil {
			if rows, err := stmt.QueryContext(ctx, q.Arrange(args...)...); !isTooMany(err) {
				return rows, err
			}
		}
		text, args := q.bind(args)
		return r.on.QueryContext(ctx, text, args...)
	}
	return sqldb.Each(query, fn)
}

// Key identifies a row in a result: an owner is of one acquisition only.
type Key struct{ Name, Owner string }

// ReadKeys collects the rows that a statement returns. It is never nil.
func (r Runner) ReadKeys(ctx context.Context, id ID, list string) (map[Key]bool, error) {
	keys := make(map[Key]bool)
	err := r.Each(ctx, id, []any{list}, func(scan func(...any) error) error {
		var key Key
		err := scan(&key.Name, &key.Owner)
		keys[key] = true
		return err
	})
	return keys, err
}

// ReadFloor returns the highest token that was deleted. Without its row no new name can be locked.
func (r Runner) ReadFloor(ctx context.Context) (floor int64, err error) {
	if err = r.One(ctx, Floor, nil, &floor); errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%w: the row floor of the table meta is missing: %w", driver.ErrMisconfigured, err)
	}
	return floor, err
}

// hasReturning reports whether an update returns the rows that it changed.
func (s *Set) hasReturning() bool { return s[Renewed].Text == "" }

// Acquire runs an attempt: Acquire or AcquireFair. It returns the token, zero if the attempt was
// refused. In MySQL the token is the insert id. How many rows changed is not asked: whether a row
// that is the same as before counts is a setting of the connection.
func (r Runner) Acquire(ctx context.Context, id ID, args ...any) (token uint64, err error) {
	if r.set.hasReturning() {
		if err = r.One(ctx, id, args, &token); errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		return token, err
	}
	result, err := r.Exec(ctx, id, args...)
	if err != nil {
		return 0, err
	}
	last, err := result.LastInsertId()
	return uint64(last), err
}

// HasRowLocks reports whether other transactions may keep single rows locked.
func (r Runner) HasRowLocks() bool { return r.set[UnlockedPlaces].Text != "" }

// Renew runs a renewal: Renew or RenewAtOnce. It returns which of the n locks in the list were
// renewed; nil is all.
func (r Runner) Renew(ctx context.Context, id ID, list string, n int) (map[Key]bool, error) {
	if !r.set.hasReturning() {
		return r.Extend(ctx, id, Renewed, list, n)
	}
	return r.ReadKeys(ctx, id, list)
}

// Hold is a lock that an owner has. A token of zero stands for any.
type Hold struct {
	Key
	Token int64
}

func (r Runner) ReleasesAll() bool { return r.set[ReleaseAll].Text != "" }

// ReleaseAll releases locks, in a transaction, and returns those that were held.
func (r Runner) ReleaseAll(ctx context.Context, holds []*Hold) (released map[Key]bool, err error) {
	var rows [][3]any
	for _, h := range holds {
		rows = append(rows, [3]any{h.Name, h.Owner, h.Token})
	}
	list := sqldb.JSON(rows)
	if r.set.hasReturning() {
		return r.ReadKeys(ctx, ReleaseAll, list)
	}
	if released, err = r.ReadKeys(ctx, LockHeld, list); err == nil && len(released) > 0 {
		_, err = r.Exec(ctx, ReleaseAll, list)
	}
	return released, err
}

// Extend runs a statement that extends the n rows in the list, and returns which exist; nil is all. It
// reads them if fewer rows have changed: a row that is extended twice within a millisecond does not
// change.
func (r Runner) Extend(ctx context.Context, id, read ID, list string, n int) (map[Key]bool, error) {
	result, err := r.Exec(ctx, id, list)
	if err != nil {
		return nil, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == int64(n) {
		return nil, err
	}
	return r.ReadKeys(ctx, read, list)
}
