// Package zklock keeps locks in ZooKeeper 3.5 or later.
//
//	store, err := zklock.Open(ctx, "zookeeper://zk1:2181,zk2:2181,zk3:2181/app?timeout=10s", nil)
//	locks := dlock.New(store, nil)
//
// A store has one session for all its locks. A lock ends with the session at the latest:
// when the store is closed, or the session's timeout after the process died or was cut
// off. While the process lives, a lock lasts for its TTL, as in every store. A grant
// promises the shorter of the TTL and three quarters of the timeout: followers report their
// clients to the leader every half tick, so that the leader may count the timeout from half
// a tick earlier. That is at most a quarter of the timeout, unless the servers' minSessionTimeout
// is less than its default of two ticks: do not lower it. A grant promises less, but
// at least two fifths of the timeout, if the store had sent nothing before for up to a third of it:
// the leader may count from there.
//
// # Nodes
//
// The lock NAME below the root /app is the container /app/NAME. The holder and every waiter
// have an ephemeral sequential node in it, _c_UUID-lock-0000000042. The node with the lowest
// number has the lock. A waiter watches all nodes ahead that exclude it, or, if there are more
// than three, only the nearest. This is the layout of Curator's InterProcessMutex and of
// go-zookeeper's Lock: on the same path they and dlock exclude and wake each other. The node's
// czxid makes the tokens, and its data describe the holder. ZooKeeper removes empty containers.
//
// Every holder and waiter also has a companion, _c_UUID-__WRIT__0000000043, or __READ__ if it
// is shared. So the readers and writers of Curator's InterProcessReadWriteLock see dlock, too.
// With [Options.ExclusiveOnly] there are no companions.
//
// A permit of a semaphore has a lease node in /app/NAME/leases instead, and a waiter for one
// has a place node in /app/NAME/locks, as in Curator's InterProcessSemaphoreV2.
//
// A name is one segment of a path. The bytes of '/', '%' and characters that ZooKeeper
// rejects are written as %2F. The lock that Curator knows as /app/orders/42 is therefore the
// lock "42" of a store with the root /app/orders.
//
// # Order
//
// With the order [Fair], the default, all waiters queue, whether they ask for a fair lock
// or not. With [Unfair] contenders do not queue: each tries to create the node lock-0, and
// waits while that node or any node of a queue exists. Unfair is faster where processes
// take a lock again and again. It offers no shared locks and no permits. Its holder also has
// the node _c_UUID-__WRIT__0, an anchor: while it exists, ZooKeeper has not replaced the
// container, so that comparing the container's version is safe. The two orders exclude each
// other and Curator, but Unfair contenders get the lock only while no queue exists.
package zklock
