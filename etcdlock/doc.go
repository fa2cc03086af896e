// Package etcdlock keeps locks in etcd 3.4 or newer, over the client that the
// program has already.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	store, err := etcdlock.New(client, nil)
//	locks := dlock.New(store, nil)
//
// A lock is written as etcd's own package concurrency writes it: a key
// <prefix><name>/<lease> that is bound to an etcd lease, where the key that was
// created first has the lock and the others wait. So etcdctl lock, clientv3's
// Mutex, jetcd and the lock service of the server exclude dlock, are excluded by
// it, and they wake each other. The token is the revision that created the key.
//
// # Names
//
// A '/' in a name is written as %2F and a '%' as %25, so that "a" never waits for
// "a/b". All other names are written as they are: dlock's "orders" is etcdctl's
// "orders". What others call "shop/orders" is "orders" in a store whose prefix is
// "shop/". In a store without that prefix do not use "shop" as a name: to etcd it
// contains all of them.
//
// # Leases
//
// All locks of a store with the same TTL share one etcd lease, so that one
// message renews all of them. The lease outlives no crash of the process by more
// than the TTL, in whole seconds, and a moment. A lock that is not renewed while others are ends nevertheless when
// its own time is over: the store then deletes it. Close gives all locks up.
//
// Whoever waits has a key in the queue, unless it only tried once: Lock without
// WithFair takes one place for all goroutines of a process, and with it one each.
// All waiters for a name share one watch, which is open before the lock is
// released.
package etcdlock
