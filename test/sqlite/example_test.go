package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
)

// A lock between the processes of one machine, in a file. The program imports
// the driver: _ "modernc.org/sqlite".
func Example() {
	folder, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := lockAndPrint(context.Background(), filepath.Join(folder, "locks.db")); err != nil {
		log.Print(err)
	}
	// Output: only one of us, token 1
}

func lockAndPrint(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		return err
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	lease, err := client.Lock(ctx, "orders/42")
	if err != nil {
		return err
	}
	fmt.Printf("only one of us, token %d\n", lease.Token())
	return lease.Unlock(ctx)
}
