package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/memlock"
)

// The row rejects the write of a holder that was paused for longer than its
// lease, and that did not check its lease.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", filepath.Join(folder, "shop.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO orders (id, state) VALUES (42, 'new')",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			fmt.Println(err)
			return
		}
	}
	orders, err := fence.New(fence.Row{Dialect: fence.SQLite, Table: "orders", Key: "id"})
	if err != nil {
		fmt.Println(err)
		return
	}
	setState := func(lease *dlock.Lease, state string) error {
		return orders.Do(ctx, db, 42, lease.Token(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state = ? WHERE id = 42", state)
			return err
		})
	}

	client := dlock.New(memlock.New(), nil)
	defer client.Close()
	paused, err := client.Lock(ctx, "orders/42", dlock.WithFixedTTL(50*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-paused.Context().Done() // the paused holder does not notice
	lease, err := client.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the new holder:", setState(lease, "paid"))
	err = setState(paused, "cancelled")
	fmt.Println("the paused holder is stale:", errors.Is(err, fence.ErrStale))

	var state string
	err = db.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = 42").Scan(&state)
	fmt.Println("order 42:", state, err)
	// Output:
	// the new holder: <nil>
	// the paused holder is stale: true
	// order 42: paid <nil>
}
