// Package redislock keeps locks in Redis or Valkey: one server, Sentinel or
// Cluster, over the client that the program has already.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redislock.New(client, nil)
//	locks := dlock.New(store, nil)
//
// The protocol [Redisson], the default, shares locks with Java's Redisson: RLock,
// its fenced lock and its fair lock exclude dlock, are excluded by it, and they
// wake each other. The protocol [Plain] shares them with whatever uses SET NX PX
// on the lock's name: redsync, bsm/redislock, redis-py and many more.
//
// # What Redis cannot promise
//
// Redis counts expiry by its wall clock and may lose what it has acknowledged: by
// eviction, by a restart unless every write is synced, by a failover. Then two
// can hold a lock at once. Options.Replicas makes the failover case less likely,
// never impossible. Tokens keep rising in all these cases as long as the clock
// of the server does not step back: whoever is protected by the token is safe.
package redislock
