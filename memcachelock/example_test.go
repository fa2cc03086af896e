package memcachelock_test

import (
	"context"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memcachelock"
)

func Example() {
	store, err := memcachelock.New("localhost:11211", nil)
	if err != nil {
		log.Fatal(err)
	}
	client := dlock.New(store, nil)
	err = client.Do(context.Background(), "warm the cache", func(context.Context) error {
		// Only one process at a time does this.
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
