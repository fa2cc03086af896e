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
// [Diagnoser] for package dlock, [TokenRaiser] and [Identifier] for
// package quorum. Its [Traits] state what it promises. Package drivertest checks
// every sentence of this contract that can be checked.
//
// # Glossary
//
// All packages use one word for one thing:
//
//   - name: what is locked. A key is what a store keeps for a name.
//   - owner: the secret of one grant. It authorizes renewal and release.
//   - grant: what the store returns for a successful acquisition.
//   - token: the fencing token of a hold, larger than that of any earlier hold. A
//     grant has a span: several tokens in a row.
//   - hold: one acquisition inside the process, from its first attempt to its end.
//   - lease: what the user of package dlock has. Several leases may share a hold.
//   - holder: the process that has the lock, described for people.
//   - trust deadline: the instant from which the client counts a lease as lost.
//   - waiter: a caller that waits. contender: a process that competes for a name.
//   - hand over: give the lock to the next waiter of the same process.
//   - time slice: how long a process hands a lock over before others compete.
//   - notification: a message that another attempt may succeed. Without it a
//     waiter polls: it tries again and again.
//   - outage: a period in which the store does not answer.
//   - session: what a store binds locks to, such as a connection or an etcd lease.
//   - janitor: the background work that removes expired entries.
package driver
