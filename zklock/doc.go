// Package zklock keeps locks in ZooKeeper 3.5 or later.
//
//	store, err := zklock.Open(ctx, "zookeeper://zk1:2181,zk2:2181,zk3:2181/locks?timeout=10s", nil)
//	locks := dlock.New(store, nil)
//
// A store has one session for all its locks. A lock ends with the session at the latest:
// when the store is closed, or the session's timeout after the process died or was cut
// off. While the process lives, a lock lasts for its TTL, as in every store. A grant
// promises the shorter of the TTL and three quarters of the timeout: a follower reports
// its clients to the leader every half tick, and a timeout is at least two ticks.
//
// # Nodes
//
// The lock NAME below the root /locks is the container /locks/NAME. The holder and every
// waiter have an ephemeral sequential node in it, _c_UUID-lock-0000000042. The node with
// the lowest number has the lock, and each waiter watches the node before its own, or the
// three before it. This is the layout of Curator's InterProcessMutex and of go-zookeeper's
// Lock: on the same path they and dlock exclude and wake each other. The node's
// czxid makes the tokens, and its data describe the holder. ZooKeeper removes empty containers.
//
// A name is one segment of a path. The bytes of '/', '%' and characters that ZooKeeper
// rejects are written as %2F. The lock that Java knows as /locks/orders/42 is therefore
// the lock "42" of a store with the root /locks/orders.
//
// # Order
//
// With the order [Fair], the default, all waiters queue, whether they ask for a fair lock
// or not. With [Unfair] contenders do not queue: each tries to create the node lock-0, and
// waits while that node or any node of a queue exists. Unfair is faster where processes
// take a lock again and again. Its holder has a second node, _c_UUID__2147483647, by which
// it recognises its own lock-0. The two orders exclude each other and Curator, but a queue
// is served before lock-0.
package zklock
