// Command redisson is the part of a shop that has moved from Java to Go. The
// rest, in Java, acquires the same lock in the same Redis by its name:
//
//	RLock lock = redisson.getLock("stock:42");
//
// Both exclude each other and wake each other. Both read the stock and write it
// back later, which would sell too much without the lock.
//
//	go run ./redisson --redis localhost:6379 --sell 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	address := flag.String("redis", "localhost:6379", "the Redis that Java uses")
	item := flag.String("item", "42", "what is sold")
	times := flag.Int("sell", 1, "how often")
	flag.Parse()
	client := redis.NewClient(&redis.Options{Addr: *address})
	defer client.Close()
	if err := sell(context.Background(), client, *item, *times); err != nil {
		log.Fatal(err)
	}
}

func sell(ctx context.Context, client *redis.Client, item string, times int) error {
	store, err := redislock.New(client, nil) // over the client that the program has already
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()
	for range times {
		err := locks.Do(ctx, "stock:"+item, func(ctx context.Context) error {
			return sellOne(ctx, client, "stock-of-"+item)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sellOne is safe only with the lock. The key of the stock must differ from that
// of the lock, which is the lock's name.
func sellOne(ctx context.Context, client *redis.Client, key string) error {
	stock, err := client.Get(ctx, key).Int()
	if err != nil {
		return err
	}
	if stock == 0 {
		return errors.New("sold out")
	}
	fmt.Println("selling one of", stock)
	return client.Set(ctx, key, stock-1, 0).Err()
}
