// Package quorum makes one lock out of several independent stores: Redlock, over any
// driver.Store. The owner that holds the lock in a majority of them has it, so that any
// minority may be dead, cut off or slow.
//
// # How it works
//
// An attempt calls all members at the same time, each for at most a fixed time. With a
// majority the owner has the lock for the TTL less 1 % and 2 ms, because the members'
// clocks run at different speeds; the caller subtracts the time of the call, as with every
// store. Without a majority the attempt gives back what it got, also where no answer came.
// A call does not wait for members that can no longer change the outcome: they go on in the
// background, and Close waits for them. A majority renews a lock, too. A member that lost
// the lock gets it again, but only while a majority holds it.
//
// Every attempt has a secret owner of its own with the members. A late call therefore belongs
// to an attempt that has ended, and cannot revoke a later grant of the same owner.
//
// If several contenders ask at the same moment, each may get a few members and none a
// majority. Such a split vote is repeated after a random time, a few times by Acquire and
// then by the waiter ([driver.Traits].SplitVotes).
//
// # Tokens
//
// Before a lock is granted, a majority of its members has stored the same token: the
// largest that a member of this majority would have given. Two majorities have a member in
// common, and its next token is larger than the last one it stored, so tokens rise,
// whichever members answer. Usually this takes one round trip, because the quorum proposes
// a token that is larger than the members' own choice ([driver.Request].Floor). Otherwise a
// second call raises the smaller ones ([driver.TokenRaiser]). With members that cannot do
// this, tokens mean nothing.
//
// # What it does not promise
//
// The members must remember. A member that crashes and comes back empty has forgotten the
// holder, and may vote a second time: two holders can then have a majority each. Members
// that keep their data through a crash do not forget (for Redis, appendfsync always).
// Others must stay out after a crash for longer than the longest TTL, so that all forgotten
// locks have expired before they vote again. This delayed restart is up to the operator.
// The second holder still has the larger token as long as a majority knows the last one, or
// if the members take their tokens from clocks that agree, as Redis does here: a resource
// that checks the token is safe.
//
// Each member counts time with its own clock. Clocks of a majority that are set forward
// make a second holder, too.
//
// A majority must be reachable. With three members one may fail, with five two. An even
// number tolerates no more failures than one less, and is rejected.
package quorum
