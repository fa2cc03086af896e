// Package fence lets a row of an application's own table reject the writes of a holder that
// has lost its lock and does not know it yet. No lock that expires can do that alone: a
// process may be stopped between its last check of the lease and its write. The row can,
// because it remembers the largest token that wrote it:
//
//	ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0
//
//	orders, err := fence.New(fence.Row{Dialect: fence.PostgreSQL, Table: "orders", Key: "id"})
//	...
//	lease, err := client.Lock(ctx, "orders/42")
//	...
//	err = orders.Do(ctx, db, 42, lease.Token(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42")
//		return err
//	})
//
// An application with a transaction of its own calls [Guard.Advance] first in it.
// The lock may be in any store; only the row has to be in a database.
//
// The rules:
//   - Every writer of the row holds a lock of the same name and writes with its token. Tokens
//     of different names, or of different stores, cannot be compared.
//   - What the write depends on is read after the row has the token: in Do's function, or after Advance.
//     Until then the row accepts a former holder, whose commit may be late. On MySQL and MariaDB, whose
//     transactions read an old snapshot by default, nothing is read before the last Advance of the
//     transaction, or its isolation is READ COMMITTED.
//   - A new row is inserted with the token of its writer.
//   - Other writes of the same transaction are protected together with the row. Work outside
//     of the transaction, such as a call to another service, is not.
//   - A row that is deleted forgets its token.
//   - The table's engine has transactions. MyISAM and Aria have none.
//   - If tokens begin again, because the lock's store was replaced or has lost its data, the
//     row rejects every write until an operator sets its column to 0.
package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
)

// The errors of this package, for use with errors.Is. They also wrap the error of the
// database.
var (
	// ErrStale: the row has been written with a larger token. The error is a [*StaleError],
	// which has that token.
	ErrStale = errors.New("another holder has had the lock since")
	// ErrNoRow: there is no row with that key.
	ErrNoRow = errors.New("no such row")
	// ErrBadName: the name of a table or of a column is not allowed.
	ErrBadName = errors.New("bad name")
)

// StaleError describes a token that a row rejected. errors.Is reports that it is [ErrStale].
type StaleError struct {
	Token uint64 // the rejected one
	Seen  uint64 // the largest one that wrote the row
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d was rejected after token %d", ErrStale, e.Token, e.Seen)
}

// Unwrap makes it ErrStale to errors.Is.
func (e *StaleError) Unwrap() error { return ErrStale }

// Row says which rows are guarded.
type Row struct {
	// Dialect is the kind of database. There is no default.
	Dialect Dialect
	// Table is the table's name, or its schema, a dot, and its name.
	Table string
	// Key is the column that identifies a row: the primary key, or another column without
	// duplicates. Advance notices a duplicate only when it writes to both rows.
	Key string
	// Column remembers the largest token: an integer of 64 bits, which is BIGINT, or in SQLite any type
	// with INT in its name. Advance refuses a column of another type. NULL counts as 0, which is no
	// token. Default "fence".
	Column string
}

// Guard guards the rows of one table in one database. It is safe for concurrent use.
type Guard struct {
	advance string // token, key, token
	look    string // key -> the largest token or NULL

	holdsTokens func(databaseType string) bool
	checked     atomic.Bool // the column holds tokens
}

// New returns the guard of a table. Names consist of letters, digits and
// underscores, spelled as the database keeps them; PostgreSQL makes them lower
// case unless they were quoted. New does not access the database.
func New(row Row) (*Guard, error) {
	row.Column = cmp.Or(row.Column, "fence")
	return row.Dialect.guard(row)
}

// Advance stores the token in the row, in the application's transaction. It returns a
// [*StaleError] if the row has seen a larger token: another holder has had the lock since.
// It returns [ErrNoRow] if there is no row with that key. After any error the application
// has to roll the transaction back.
//
// Call Advance first in the transaction. It locks the row, so that no other transaction
// advances it meanwhile, and what is read after it is what the last holder has written (on MySQL
// and MariaDB only if nothing was read before, or with READ COMMITTED). The
// same token may be used many times. The key has the type of its column.
func (g *Guard) Advance(ctx context.Context, tx *sql.Tx, key any, token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("%d is not a token", token)
	}
	moved, err := g.move(ctx, tx, key, token)
	if err == nil {
		err = g.check(ctx, tx, key)
	}
	if err != nil || moved {
		return err
	}
	// Either the row has a larger token, or it had the same token before and the database,
	// as MySQL, does not count it. Reading the row tells which.
	seen, err := g.read(ctx, tx, key)
	switch {
	case err != nil:
		return err
	case seen > int64(token):
		return &StaleError{Token: token, Seen: uint64(seen)}
	case seen == int64(token):
		return nil
	}
	// The row was inserted between the two statements, and is locked by now.
	if moved, err = g.move(ctx, tx, key, token); err == nil && !moved {
		err = fmt.Errorf("the row with token %d cannot be moved to %d", seen, token)
	}
	return err
}

// read returns the token of the row.
func (g *Guard) read(ctx context.Context, tx *sql.Tx, key any) (int64, error) {
	var seen sql.NullInt64
	switch err := tx.QueryRowContext(ctx, g.look, key).Scan(&seen); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, ErrNoRow
	case err != nil:
		return 0, fmt.Errorf("read the token: %w", err)
	}
	return seen.Int64, nil
}

// check returns an error unless the column holds every token. Another type may keep another number without an
// error, and then lets stale tokens pass.
// It comes after the first write of the transaction: see the rules.
func (g *Guard) check(ctx context.Context, tx *sql.Tx, key any) error {
	if g.checked.Load() {
		return nil
	}
	rows, err := tx.QueryContext(ctx, g.look, key)
	if err != nil {
		return fmt.Errorf("read the type of the column: %w", err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err == nil {
		if name := types[0].DatabaseTypeName(); !g.holdsTokens(strings.ToUpper(name)) {
			return fmt.Errorf("the column %q is %s: it must be an integer of 64 bits, BIGINT or in SQLite INTEGER", types[0].Name(), cmp.Or(name, "of an unknown type"))
		}
		err = rows.Close()
	}
	if err != nil {
		return fmt.Errorf("read the type of the column: %w", err)
	}
	g.checked.Store(true)
	return nil
}

// move writes the token unless the row has a larger one. It reports whether the row
// certainly has the token now.
func (g *Guard) move(ctx context.Context, tx *sql.Tx, key any, token uint64) (bool, error) {
	result, err := tx.ExecContext(ctx, g.advance, int64(token), key, int64(token))
	var n int64
	if err == nil {
		n, err = result.RowsAffected()
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("write the token: %w", err)
	case n > 1:
		return false, fmt.Errorf("%d rows have the same key; a guard needs a unique one", n)
	}
	return n == 1, nil
}

// Beginner begins transactions: a *sql.DB or a *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Do calls write in a transaction that begins with [Guard.Advance], and commits it. Read in write what
// it depends on, even if you have read it before. If the row rejects the token, Do does not call write.
// If write fails, Do rolls everything back and returns the error as it is. After an error of the commit
// itself the transaction may have been carried out: repeat Do, whose write reads first.
func (g *Guard) Do(ctx context.Context, db Beginner, key any, token uint64, write func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer tx.Rollback() // has no effect after Commit, and otherwise the first error says more
	if err := g.Advance(ctx, tx, key, token); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
