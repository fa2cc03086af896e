package sqlservers

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Locks in the PostgreSQL that the program has already, in rows that expire, and as
// advisory locks that live as long as a connection of the pool.
func Example_postgres() {
	server, err := servers.Start(servers.Postgres)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Stop() }()

	ctx := context.Background()
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.Postgres})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	bound, err := sqlsession.New(ctx, db, &sqlsession.Options{Dialect: sqlsession.Postgres})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bound.Close()

	for _, client := range []*dlock.Client{dlock.New(store, nil), dlock.New(bound, nil)} {
		err = client.Do(ctx, "orders/42", func(context.Context) error {
			fmt.Println("charging order 42")
			return nil
		})
		fmt.Println(err, client.Close())
	}
	// Output:
	// charging order 42
	// <nil> <nil>
	// charging order 42
	// <nil> <nil>
}
