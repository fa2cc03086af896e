package sqlsession_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/sqlsession"
)

// The program imports the driver of its database, such as github.com/jackc/pgx/v5/stdlib.
func ExampleOpen() {
	_, err := sqlsession.Open(context.Background(), "postgres://app@localhost/billing?scheme=row", nil)
	fmt.Println(err)
	// Output:
	// bad URL: scheme row is one of package sqllock
}

func ExampleSchema() {
	statements, err := sqlsession.Schema(sqlsession.Postgres, "billing_")
	fmt.Println(len(statements) > 0, err)
	// Output:
	// true <nil>
}
