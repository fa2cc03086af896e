package redislock_test

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// A store over the client that the program has already.
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

// With Sentinel, a lock that counts only when a replica has it too.
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

	fmt.Println(store.Traits().SurvivesFailover) // less likely to forget is not never
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

// A URL says everything, and its errors contain no password.
func ExampleOpen() {
	store, err := redislock.Open("redis://app:secret@localhost:6379/0?protocol=plain")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	_, err = redislock.Open("redis://app:secret@localhost:6379/0?protocol=other")
	fmt.Println(err)
	// Output:
	// bad URL: protocol is "other", not redisson or plain
}
