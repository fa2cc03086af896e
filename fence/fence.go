// Package fence lets a row of an application's own table refuse writes of
// somebody who has lost a lock and does not know it yet. No lock that expires can
// do that alone: a process may be stopped between its last look at the lease and
// its write. The row can, because it remembers the largest token that wrote it:
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
//   - All who write the row do so under a lock of the same name and with its
//     token. Tokens of different names, or of different stores, say nothing about
//     each other.
//   - What else is written in the transaction is protected together with the row.
//     What is done outside of it, such as a call to another service, is not.
//   - A row that is deleted forgets its token.
//   - The table is of an engine with transactions. MyISAM and Aria have none.
//   - If tokens begin anew, because the lock's store was replaced or has lost its
//     data, the row refuses everybody until its column is set to 0 by hand.
package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
)

// Row says which rows are guarded.
type Row struct {
	// Dialect is the kind of database. There is no default.
	Dialect Dialect
	// Table is its name, or that of its schema, a dot, and its name.
	Table string
	// Key is the column by which a row is found: the primary key, or another one
	// of which no two rows have the same value. That two have is noticed only when
	// a token moves both.
	Key string
	// Column remembers the largest token: an integer of 64 bits. A column that
	// kept another number than was written is an error of Advance. NULL is no
	// token, like 0. Default "fence".
	Column string
}

// Guard guards the rows of one table. It may be used concurrently.
type Guard struct {
	advance string       // token, key, token
	look    string       // key -> the largest token
	kept    atomic.Int32 // the bits of the longest token that the column is known to keep
}

// New returns the guard of a table. Names consist of letters, digits and
// underscores, spelled as the database keeps them; PostgreSQL makes them lower
// case unless they were quoted. Nothing is looked up.
func New(row Row) (*Guard, error) {
	if row.Column == "" {
		row.Column = "fence"
	}
	return row.Dialect.guard(row)
}

// Advance lets the row remember the token, in the transaction of the application,
// and returns a [*StaleError] if the row has seen a larger one: then the lock
// has been somebody else's, and the transaction has to be rolled back. [ErrNoRow]
// says that there is no row with that key. After any other error it has to be
// rolled back as well.
//
// It must come first in the transaction. It locks the row, so that nobody else
// advances it before the transaction ends, and what is read after it is what the
// last holder has left. The same token may come again and again. The key is of the
// type of its column.
func (g *Guard) Advance(ctx context.Context, tx *sql.Tx, key any, token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("%d is no token of a lock", token)
	}
	moved, err := g.move(ctx, tx, key, token)
	if err != nil {
		return err
	}
	if moved {
		return g.verify(ctx, tx, key, token)
	}
	// Nothing was moved, or the database does not count a row that had the same
	// token before, as MySQL does not. Whichever it was, the row tells.
	seen, err := g.read(ctx, tx, key)
	switch {
	case err != nil:
		return err
	case seen > int64(token):
		return &StaleError{Token: token, Seen: uint64(seen)}
	case seen == int64(token):
		return nil
	}
	// The row has come in between, and is locked by now.
	if moved, err = g.move(ctx, tx, key, token); err == nil && !moved {
		err = fmt.Errorf("the row with token %d cannot be moved to %d", seen, token)
	}
	if err != nil {
		return err
	}
	return g.verify(ctx, tx, key, token)
}

// read returns the token of the row.
func (g *Guard) read(ctx context.Context, tx *sql.Tx, key any) (seen int64, err error) {
	switch err := tx.QueryRowContext(ctx, g.look, key).Scan(&seen); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, ErrNoRow
	case err != nil:
		return 0, fmt.Errorf("read the token: %w", err)
	}
	return seen, nil
}

// verify reads the token that was written. A column that is no integer of 64 bits may
// keep another number without an error, and then lets stale tokens pass. It reads again
// only when tokens have become longer.
func (g *Guard) verify(ctx context.Context, tx *sql.Tx, key any, token uint64) error {
	length := int32(bits.Len64(token))
	known := g.kept.Load()
	if length <= known {
		return nil
	}
	seen, err := g.read(ctx, tx, key)
	if err != nil {
		return err
	}
	if seen != int64(token) {
		return fmt.Errorf("the column kept %d instead of the token %d: it must be an integer of 64 bits", seen, token)
	}
	g.kept.CompareAndSwap(known, length) // if another was faster, the next one reads again
	return nil
}

// move writes the token unless there is a larger one. It says whether it is
// certain that the row has the token now.
func (g *Guard) move(ctx context.Context, tx *sql.Tx, key any, token uint64) (bool, error) {
	result, err := tx.ExecContext(ctx, g.advance, int64(token), key, int64(token))
	if err != nil {
		return false, fmt.Errorf("write the token: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("write the token: %w", err)
	}
	if n > 1 {
		return false, fmt.Errorf("%d rows have the same key, which guards none of them", n)
	}
	return n == 1, nil
}

// Beginner begins transactions: a *sql.DB or a *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Do calls write in a transaction that begins with [Guard.Advance], and commits
// it. If the token is refused write is not called. If write fails everything is
// rolled back, and its error is returned as it is.
func (g *Guard) Do(ctx context.Context, db Beginner, key any, token uint64, write func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // Has no effect after Commit, and otherwise the first error says more.
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
