// Package driver is the contract between dlock and the stores that keep its
// locks. Users of locks do not need it; authors of stores implement [Store].
//
// A store owns four things: atomicity, the escaping of names, fencing tokens
// and wake-ups. Everything else (queues inside a process, re-entry, renewal, the
// decision that a lock is lost, retries) belongs to package dlock and is
// written once.
//
// The mandatory part is small. What a store can do beyond it, it says by
// implementing one of the one-method extensions ([Watcher], [Lister], [Finder], [Breaker],
// [BatchAcquirer], [Passer], [Diagnoser]), which dlock looks for and does without.
// [TokenRaiser] and [Identifier] are for the members of a quorum. What it
// promises, it says with [Traits].
//
// Package drivertest checks every sentence of this contract that can be checked.
package driver
