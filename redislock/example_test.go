package redislock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// A store over the program's own client.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store, err := redislock.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()

	fmt.Println(locks.Traits().Store, locks.Traits().Fencing)
	// Output:
	// redis clock-bound
}

// With Sentinel, a lock is granted only if a replica has acknowledged it.
func ExampleNew_sentinel() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "main",
		SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
	})
	defer client.Close()
	store, err := redislock.New(client, &redislock.Options{Replicas: 1, ReplicaTimeout: 300 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	fmt.Println(store.Traits().SurvivesFailover) // losing a lock is less likely, not impossible
	// Output:
	// false
}

// With Cluster, every lock is on the server that has its slot.
func ExampleNew_cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
	defer client.Close()
	store, err := redislock.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	fmt.Println(store.Traits().Fair)
	// Output:
	// true
}

// A URL contains everything. Errors contain no password.
func ExampleOpen() {
	store, err := redislock.Open(context.Background(), "redis://app:secret@localhost:6379/0?protocol=plain", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	_, err = redislock.Open(context.Background(), "redis://app:secret@localhost:6379/0?protocol=other", nil)
	fmt.Println(err)
	// Output:
	// bad URL: protocol is "other", not redisson or plain
}
