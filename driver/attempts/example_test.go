package attempts_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
)

// A store records an attempt whose connection broke, and asks the Log before it releases the owner.
func ExampleLog() {
	ctx := context.Background()
	log := attempts.New(func(_ context.Context, name string, _ driver.Owner) error {
		fmt.Println("released", name, "again")
		return nil
	})

	// Acquire: the connection broke before the answer.
	owner := driver.NewOwner()
	log.Unanswered("orders/42", owner)

	// Release: the server does not have the lock yet, but may still carry the attempt out.
	released, err := log.Settle(ctx, driver.Grant{Name: "orders/42", Owner: owner})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("released orders/42")
	released()

	// Close: what was not undone yet is undone once more.
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// released orders/42
	// released orders/42 again
}
