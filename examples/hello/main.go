// Command hello holds a lock for a moment. Every process that opens the same file
// respects it.
//
//	go run ./hello
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
	_ "modernc.org/sqlite"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN("locks.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	err = client.Do(ctx, "orders/42", func(ctx context.Context) error {
		fmt.Println("charging order 42") // ctx is done before the lease expires
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
