package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
)

// A program that shares a lock with all others that use the same file.
func Example() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()

	ctx := context.Background()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(folder, "locks.db")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	err = client.Do(ctx, "orders/42", func(ctx context.Context) error {
		fmt.Println("charging order 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// charging order 42
	// <nil>
}
