package redis

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/servers"
)

// A program that shares a lock with all others that use the same server, in Go
// or, with Redisson, in Java.
func Example() {
	server, err := servers.Start(servers.Redis)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Stop() }()

	ctx := context.Background()
	store, err := redislock.Open(server.URL())
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
