// Package etcdlock keeps locks in etcd 3.4 or newer, over the client that the program has already.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	store, err := etcdlock.New(client, nil)
//	locks := dlock.New(store, nil)
//
// A lock is written as etcd's own package concurrency writes it: a key <prefix><name>/<lease> that
// is bound to an etcd lease. The key that was created first has the lock, the others wait. So dlock
// excludes etcdctl lock, clientv3's Mutex, jetcd and the lock service of the server, they exclude
// it, and they wake each other. The first token of a lock is 1024 times the revision that created
// the key.
//
// The keys of shared holders are <prefix><name>/~shared-<lease>, those of permits
// <prefix><name>/~limit<n>-<lease>. A shared key has the lock when only shared keys were created
// before it, a permit when fewer than n keys were created before it, all with the same limit. The
// programs above treat each of these keys as exclusive.
//
// # Names
//
// A '/' in a name is written as %2F and a '%' as %25, so that "a" never waits for "a/b". What others
// call "shop/orders" is "orders" in a store whose prefix is "shop/". In a store without that prefix do
// not use "shop" as a name: its queue, the keys that begin with "shop/", would contain the keys of all
// those locks.
//
// # Leases
//
// All locks of a store with the same TTL share one etcd lease, so that a single message renews all of
// them. If the process crashes, the server ends the etcd lease after the TTL, rounded up to whole
// seconds, or a little later. A lock that is not renewed while others on the etcd lease are is deleted
// by the store when its own TTL ends. Close releases all locks.
package etcdlock
