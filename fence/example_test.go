package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
)

// Names are checked before they become SQL.
func ExampleNew() {
	orders, err := fence.New(fence.Row{Dialect: fence.PostgreSQL, Table: "orders", Key: "id"})
	fmt.Println(orders != nil, err)
	_, err = fence.New(fence.Row{Dialect: fence.PostgreSQL, Table: "orders; DROP TABLE orders", Key: "id"})
	fmt.Println(err)
	_ = pay // which uses it
	// Output:
	// true <nil>
	// bad name "orders; DROP TABLE orders": 1 to 63 letters, digits and _ are allowed, and no digit at the start
}

// pay is how an application writes a row under a lock.
func pay(ctx context.Context, db *sql.DB, client *dlock.Client, orders *fence.Guard, id int) error {
	lease, err := client.Lock(ctx, fmt.Sprintf("orders/%d", id))
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) //nolint:errcheck // The row has said already whether the lock was lost.
	err = orders.Do(lease.Context(), db, id, lease.Token(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(lease.Context(), "UPDATE orders SET state = 'paid' WHERE id = $1", id)
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("order %d was written by somebody else: %w", id, err)
	}
	return err
}
