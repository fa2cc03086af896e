// Package dlock is a distributed lock: one API for a lock that many processes on
// many machines respect, over the stores that people already run.
//
//	store, err := ...                                // memlock, sqllock, ...
//	client := dlock.New(store, nil)
//	defer client.Close()
//
//	lease, err := client.Lock(ctx, "orders/42")      // waits; ctx bounds the waiting
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(ctx)
//	return charge(lease.Context(), lease.Token())
//
// # Concepts
//
// A name is what is locked: any UTF-8 text of 1 to 255 bytes without control
// characters. A [Client] acquires names in one store. A [Lease] is one
// acquisition: it has a fencing token, and a context that ends when the lock is
// not held any more. If the holder crashes, its lock expires within a TTL, by default 30
// seconds. While it is held, it is renewed every third of the TTL.
//
// Waiters of one process queue in order of arrival, and only the first asks the store. Across
// processes no order is promised. If all use [WithFair], each asks, in order.
//
// Lock with a context that comes from a lease re-enters: it returns another lease of the
// same lock, and does not ask the store.
//
// With [WithShared] many callers share a name. A caller without it holds the name alone.
// [Lease.Downgrade] makes an exclusive lease a shared one. With [WithLimit] a name is a
// semaphore. The Traits of a store say whether it offers them.
//
// # What is guaranteed, and what is not
//
// The store grants a name to one exclusive owner at a time, and every grant has a larger
// token than all grants before it. Shared leases overlap, so the order of their tokens means
// nothing among themselves. The lease's context is done before the store may grant the name
// to another owner, whatever the network does, as long as the store counts time correctly and
// the lock is not bound to a connection (package sqlsession).
// The client counts from the moment at which it sent the last renewal, on a clock that
// cannot be set. The Traits of a store and docs/guarantees.md say what happens when its
// clock is set, or when it crashes or fails over.
//
// A process may be stopped between checking its lease and writing, and write after its
// lock has expired. No lock with an expiry can prevent that. Only the resource itself
// can: let it remember the largest token it has seen, and reject smaller ones.
//
// Break revokes a lock on purpose. Its holder finds out at its next renewal, or when its TTL
// ends if it is cut off from the store or does not renew.
package dlock
