// Package driver is the contract between dlock and the stores that keep its
// locks. Users of locks do not need it; authors of stores implement [Store].
//
// A store is responsible for atomicity, the escaping of names, fencing tokens
// and notifications. Package dlock does everything else once for all stores: the
// queue inside a process, re-entry, renewal, the decision that a lock is lost,
// and retries.
//
// Only Store is mandatory. A store offers more by implementing extensions of one
// method each: [Watcher], [Lister], [Finder], [Breaker], [BatchAcquirer],
// [Downgrader], [Diagnoser]. Its [Traits] state what it promises. Package drivertest
// checks every sentence of this contract that can be checked.
//
// # Glossary
//
// All packages use one word for one thing:
//
//   - name: what is locked. A key is what a store keeps for a name.
//   - call: one Lock, TryLock or LockAll of package dlock. bid: one name of a call.
//   - attempt: one call of Acquire. Its outcome is a grant, a refusal ([ErrHeld] or
//     [ErrMode]) or unknown. claim: what a bid needs for its attempts.
//   - owner: the secret that all attempts for one grant have. It authorizes renewal and release.
//   - grant: what the store has for one owner, from a successful attempt to its end.
//   - token: the fencing token of a tenure, larger than that of any earlier tenure that excludes
//     it. Every grant has a step of tokens: as many in a row as the store always grants.
//   - tenure: what one caller has of a grant. Several have it one after the other if it is handed
//     over, and at the same time if it is shared.
//   - lease: what the user of package dlock has. Leases that re-entered belong to the same tenure.
//   - holder: the process that has the lock, described for people.
//   - trust deadline: the instant from which the client counts a lease as lost.
//   - waiter: a caller that waits. contender: a process that competes for a name.
//   - place: the position of a waiter in a queue of the store.
//   - slot: the right of one caller of a process, its occupant, to compete for a name.
//     Redis Cluster's slots are hash slots.
//   - share: what a shared holder has of a lock. permit: what a holder has of a semaphore.
//   - hand over: give the lock to the next waiter of the same process.
//   - time slice: how long a process keeps taking a lock before it pauses.
//   - notification: a message that another attempt may succeed. Without it a
//     waiter polls: it tries again and again.
//   - outage: a period in which the store does not answer.
//   - session: what a store binds locks to, such as a connection or an etcd lease.
//   - janitor: the background work that removes expired entries.
package driver
