package zklock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/zklock"
)

// A store has one session for all its locks.
func ExampleNew() {
	store, err := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, &zklock.Options{
		Root:    "/locks/orders", // what Curator knows as /locks/orders/42 is "42" here
		Timeout: 10 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()

	fmt.Println(locks.Traits().Store, locks.Traits().Fencing, locks.Traits().Fair)
	// Output:
	// zookeeper strong true
}

// A URL can contain all options. Errors contain no password.
func ExampleOpen() {
	_, err := zklock.Open(context.Background(), "zookeeper://app:secret@zk1,zk2,zk3/locks?order=any", nil)
	fmt.Println(err)
	// Output:
	// bad URL: order is "any", not fair or unfair
}
