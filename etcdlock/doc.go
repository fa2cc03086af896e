// Package etcdlock keeps locks in etcd 3.4 or newer, over the client that the program has already.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	store, err := etcdlock.New(client, nil)
//	locks := dlock.New(store, nil)
//
// A lock is written as etcd's own package concurrency writes it: a key <prefix><name>/<lease> that
// is bound to an etcd lease. The key that was created first has the lock, the others wait. So dlock
// excludes etcdctl lock, clientv3's Mutex, jetcd and the lock service of the server, they exclude
// it, and they wake each other. The tokens of a lock
// are 1024 times the revision that created the key, and the numbers that follow.
//
// # Names
//
// A '/' in a name is written as %2F and a '%' as %25, so that "a" never waits for "a/b". All other
// names are written as they are: dlock's "orders" is etcdctl's "orders". What others call
// "shop/orders" is "orders" in a store whose prefix is "shop/". In a store without that prefix do
// not use "shop" as a name: to etcd it contains all of them.
//
// # Leases
//
// All locks of a store with the same TTL share one etcd lease, so that a single message renews all of
// them. If the process crashes, the lease ends after the TTL, in whole seconds, and a moment. A
// lock that is not renewed while others on the lease are is deleted by the store when its own TTL
// ends. Close releases all locks.
//
// A waiter has a key in the queue, unless it only tries once. Without WithFair all goroutines of a
// process share one key; with it each has its own. All waiters for a name share one watch, which is
// open before the lock is released.
package etcdlock
