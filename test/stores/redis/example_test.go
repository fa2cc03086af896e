package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Redlock: a lock on three independent servers. One of them may be down.
func Example_redlock() {
	group, err := servers.StartGroup(3, servers.Redis)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = group.Stop() }()
	addrs := group.Addrs()

	ctx := context.Background()
	url := "redlock://" + strings.Join(addrs, ",")
	store, err := redlock.Open(ctx, url, &redlock.Options{MemberTimeout: 500 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()

	if err := group[0].Kill(); err != nil {
		fmt.Println(err)
		return
	}
	err = client.Do(ctx, "orders/42", func(context.Context) error {
		fmt.Println("charging order 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// charging order 42
	// <nil>
}
