package quorum_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// Members are stores of any kind that keep their data independently of each other:
// five Redis servers, for example, each with a redislock.Store of its own. Here they
// are in memory.
func Example() {
	var members []driver.Store
	for range 5 {
		members = append(members, memlock.New())
	}
	store, err := quorum.New(members, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	err = client.Do(context.Background(), "orders/42", func(ctx context.Context) error {
		_, err := client.TryLock(context.Background(), "orders/42")
		fmt.Println("another contender is refused:", errors.Is(err, dlock.ErrHeld))
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// another contender is refused: true
	// done: <nil>
}

// An even number of members tolerates no more failures than one less.
func ExampleNew_even() {
	_, err := quorum.New([]driver.Store{memlock.New(), memlock.New(), memlock.New(), memlock.New()}, nil)
	fmt.Println(err)
	// Output:
	// 4 members tolerate no more failures than 3 members do, and split their votes more often: leave one out, or add one
}
