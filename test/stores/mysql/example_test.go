package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Locks in the MySQL or MariaDB that the program has already.
func Example() {
	server, err := servers.Start(servers.MariaDB)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Stop() }()

	ctx := context.Background()
	db, err := sql.Open("mysql", "dlock:dlock@tcp("+server.Addr()+")/dlock")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.MySQL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	err = client.Do(ctx, "orders/42", func(context.Context) error {
		fmt.Println("charging order 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// charging order 42
	// <nil>
}
