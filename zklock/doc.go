// Package zklock keeps locks in ZooKeeper 3.5 or later.
//
//	store, err := zklock.Open("zookeeper://zk1:2181,zk2:2181,zk3:2181/locks?timeout=10s")
//	locks := dlock.New(store, nil)
//
// A store has one session for all its locks. Locks live no longer than the
// session: they are gone when the store is closed, and the session's timeout after
// its process died or was cut off. While the process lives they last for the TTL
// that was asked for, as in every store. A grant therefore promises the smaller of
// the two, and of the timeout only three quarters: a server that follows tells the
// leader of its clients every half tick, and a timeout is at least two ticks.
//
// # Nodes
//
// The lock NAME below the root /locks is the container /locks/NAME, and whoever has
// it or waits for it has an ephemeral sequential node in it,
// _c_UUID-lock-0000000042. Whose number is the lowest has the lock, and everybody
// watches the one before, or the three before: the layout of Curator's InterProcessMutex, which excludes
// dlock on the same path, is excluded and woken by it, and so does the Lock of
// go-zookeeper. The token is the node's czxid. Its data are the holder's description
// for people. ZooKeeper removes containers that are empty.
//
// A name is one segment of a path. Characters that cannot be in one, which are '/',
// '%' and what ZooKeeper refuses, are written as their bytes, %2F. A lock that Java
// knows as /locks/orders/42 is therefore the lock "42" of a store whose root is
// /locks/orders.
//
// # Order
//
// With the order [Fair], the default, all waiters queue, whether they ask for a fair
// lock or not. With [Unfair] nobody queues: everybody tries to create the node
// lock-0, and whoever finds it there, or any node of a queue, waits until that is
// gone. It is faster where processes take a lock again and again. The holder has a
// second node, _c_UUID__2147483647, by which it recognises its own lock-0. The two orders
// exclude each other, and Curator, but one that queues never lets the others pass.
//
// # The session
//
// The store opens its own, because the events that tell of its end can be seen only
// by whoever opened the connection. A session that ended is replaced; what was held
// is lost, and said to be at once. A node that an earlier session left is never
// taken for one of ours.
package zklock
