package sqllock_test

import (
	"fmt"

	"github.com/dlock-go/dlock/sqllock"
)

// The statements for an administrator to run, where the program itself may not
// create tables.
func ExampleSchema() {
	statements, err := sqllock.Schema(sqllock.SQLite, "billing_")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(statements), "statements, the first creates billing_locks")
	_, err = sqllock.Schema(sqllock.SQLite, "x; DROP TABLE orders; --")
	fmt.Println(err)
	// Output:
	// 5 statements, the first creates billing_locks
	// table prefix "x; DROP TABLE orders; --": letters, digits and _ are allowed, and no digit at the start
}

// The settings that make locks in a file safe are part of the data source name.
func ExampleSQLiteDSN() {
	fmt.Println(sqllock.SQLiteDSN("/var/lib/billing/locks.db"))
	// Output:
	// file:/var/lib/billing/locks.db?_pragma=busy_timeout(5)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate
}
