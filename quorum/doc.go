// Package quorum makes one lock out of several independent stores: Redlock, over any
// driver.Store. The owner that holds the lock in a majority of them has it, so that any
// minority may be dead, cut off or slow: one of three members, or two of five.
//
// # How it works
//
// An attempt calls all members at the same time, each for at most a fixed time. With a
// majority the owner has the lock for the shortest TTL that its members promise, less 1 % of
// the TTL and 2 ms, because the members' clocks run at different speeds. Without a majority the
// attempt releases what it got, also where no answer came, and waits for the members that
// certainly granted. In all other cases a call returns when its outcome is certain: calls to the
// other members go on in the background, and Close waits for them. A majority renews a lock,
// too. A member that lost the lock gets it again, but only while a majority holds it.
//
// Use members of one kind. Stores promise different TTLs: ZooKeeper at most three quarters of its
// session timeout, etcd a little less than was asked for, Redis all of it. A member that promises less than
// the first majority did does not count when the lock is renewed, so that the failure of another
// one may end the lock.
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
// second call raises the smaller ones ([driver.TokenRaiser]). All tokens of a grant
// ([driver.Traits].TokenStep) follow the same rule: each member of the majority has set them aside.
// With members of different kinds, or that cannot raise tokens, tokens mean nothing.
//
// # What it does not promise
//
// The members must remember. A member that crashes and comes back empty has forgotten the
// holder, and may vote a second time: two holders can then have a majority each. Members
// that keep their data through a crash do not forget (for Redis, appendfsync always). The
// operator must keep a member that forgets offline after a crash for longer than the longest TTL,
// until all forgotten locks have expired. The second holder still has the larger token as long as a
// majority knows the last one, or if the members take their tokens from clocks that agree, as
// Redis does here: a resource that checks the token is safe.
//
// Each member counts time with its own clock. Clocks of a majority that are set forward
// make a second holder, too.
package quorum
