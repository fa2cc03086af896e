// Package zklock keeps locks in ZooKeeper 3.5 or later.
//
//	store, err := zklock.Open(ctx, "zookeeper://zk1:2181,zk2:2181,zk3:2181/app?timeout=10s", nil)
//	locks := dlock.New(store, nil)
//
// A store has one session for all its locks. A lock ends with the session at the latest: when the
// store is closed, or the session's timeout after the process died or was cut off. While the process
// lives, a lock lasts for its TTL, as in every store. A grant promises the shorter of the TTL and three
// quarters of the timeout, because followers report their clients to the leader every half tick: do
// not lower the servers' minSessionTimeout below its default of two ticks. It promises less, but at
// least two fifths of the timeout, if the store had sent nothing before for up to a third of it.
//
// # Nodes
//
// The lock NAME below the root /app is the container /app/NAME. The holder and every waiter have an
// ephemeral sequential node in it, _c_UUID-lock-0000000042, whose czxid makes the tokens. The node with
// the lowest number has the lock. Each also has a companion, _c_UUID-__WRIT__0000000043, or __READ__ if
// it is shared, unless [Options.ExclusiveOnly] is set. A permit has a lease node in /app/NAME/leases
// instead, and a waiter for one has a place node in /app/NAME/locks. So the recipes of Curator and the
// Lock of go-zookeeper exclude and wake dlock on the same path, and are excluded and woken.
//
// A name is one segment of a path. The bytes of '/', '%' and characters that ZooKeeper rejects are
// written as %2F. The lock that Curator knows as /app/orders/42 is therefore the lock "42" of a store
// with the root /app/orders.
//
// # Order
//
// With the order [Fair], the default, all waiters queue, whether they ask for a fair lock or not. With
// [Unfair] each contender tries to create the node lock-0, and waits while that node or any node of a
// queue exists. Its holder also has an anchor, _c_UUID-__WRIT__0: while it exists, ZooKeeper has not
// replaced the container, so that comparing the container's version is safe.
package zklock
