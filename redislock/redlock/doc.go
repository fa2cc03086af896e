// Package redlock makes one lock out of several independent Redis servers: Redlock. The owner
// that holds the lock in a majority of them has it, so that any minority may be dead, cut off or
// slow: one of three members, or two of five. The members speak the protocol [redislock.Plain], and so share
// locks with redsync and other programs that use Redlock.
//
//	store, err := redlock.Open(ctx, "redlock://10.0.0.1,10.0.0.2,10.0.0.3", nil)
//	locks := dlock.New(store, nil)
//
// # How it works
//
// An attempt calls all members at the same time, each for at most a fixed time. With a
// majority the owner has the lock for its TTL, less 1 % of the TTL and 2 ms, because the members'
// clocks run at different speeds. Without a majority the attempt releases what it got, also
// where no answer came, and waits for the members that certainly granted. In all other cases a call
// returns when its outcome is certain: calls to the other members go on in the background, and
// Close waits for them. A majority renews a lock, too. A member that lost the lock gets it again,
// but only while a majority holds it.
//
// If several contenders ask at the same moment, each may get a few members and none a
// majority: all are refused, although the lock is free. Such a split vote is repeated after a random
// time, a few times by Acquire and then by the waiter: the refusal names no holder, and its Remaining
// is the time until then. A single contender is never refused a free lock.
//
// # Tokens
//
// Before a lock is granted, a majority of its members has stored the same token: the
// largest that a member of this majority would have given. Two majorities have a member in
// common, and its next token is larger than the last one it stored, so tokens rise,
// whichever members answer. Usually this takes one round trip, because all members are asked for
// tokens from the latest of their clocks on. Otherwise a second call raises the smaller ones. All
// tokens of a grant (driver.Traits.TokenStep) follow the same rule: each member of the majority
// has set them aside.
//
// # What it does not promise
//
// The members must remember. A member that crashes and comes back empty has forgotten the
// holder, and may vote a second time: two holders can then have a majority each. Members with
// appendfsync always do not forget. The operator must keep a member that forgets offline after a
// crash for longer than the longest TTL, until all forgotten locks have expired. The second holder
// still has the larger token as long as a majority knows the last one, or if the members' clocks
// agree: a resource that checks the token is safe.
//
// Each member counts time with its own clock. Clocks of a majority that are set forward
// make a second holder, too.
package redlock
