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
// not ours any more. A lock outlives a holder that crashed by its TTL, 30 seconds
// unless told otherwise; while it is held it is renewed every third of that.
//
// Within a process those who wait for a name queue up, first come, first served,
// and one of them speaks to the store for all. Across processes the order is up
// to chance, unless everybody asks with [WithFair].
//
// A context that comes from a lease re-enters: locking the same name with it
// counts, and asks the store nothing.
//
// # What is guaranteed, and what is not
//
// The store grants a name to one owner at a time, and with every grant a larger
// token. The lease's context is done before the store may grant the name to
// somebody else, whatever the network does, counted from the moment at which the
// last renewal was sent, on a clock that cannot be set, as long as the store
// itself counts time rightly. What happens when a store's clock is set, or when it
// crashes or fails over, is said by its Traits and in docs/guarantees.md.
//
// No lock with an expiry can keep a process from acting that was stopped, or is
// slow, between looking at its lease and writing. Only the resource itself can:
// let it remember the largest token it has seen, and refuse smaller ones.
//
// Break takes a lock from its holder, who finds out at its next renewal. That is
// what it is for.
package dlock
