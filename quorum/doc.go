// Package quorum makes one lock out of several independent stores: Redlock, over
// whatever implements driver.Store. A lock belongs to whoever holds it in a
// majority of them, so that any minority may be dead, cut off or slow.
//
// # How it works
//
// All members are asked at the same time, each for at most a fixed time. Who gets
// a majority has the lock, for the TTL less 1 % and 2 ms, because the members'
// clocks run at different speeds; the time that the asking took is the caller's
// to subtract, as with every store. Who does not gives back what it got, also
// where no answer came. Nobody waits for members that can no longer change the
// outcome: what they are still doing goes on in the background, and Close waits
// for it. A lock is renewed by a majority too. A member that lost it gets it
// again, but only while a majority holds.
//
// Every attempt has a secret of its own with the members. A call that arrives
// late therefore belongs to an attempt that is over, and cannot take away what
// a later attempt of the same owner was granted.
//
// When several ask at the same moment, each may get a few members and nobody a
// majority. Such a split vote is repeated after a random time, a few times at
// once and then by whoever waits ([driver.Traits].SplitVotes).
//
// # Tokens
//
// Before a lock is granted, a majority of its members has stored the same token,
// which is the largest that any of that majority would have given. Two majorities
// have a member in common, and its next token is larger than the last one it
// stored: so tokens rise, whichever members answer. Usually it takes no more than
// the one round trip, because the quorum proposes a token that is larger than
// what the members would choose themselves ([driver.Request].Floor); otherwise it
// raises the smaller ones with a second call ([driver.TokenRaiser]). Members
// that cannot do this make locks whose tokens mean nothing.
//
// # What it does not promise
//
// The members must remember. One that crashes and comes back empty has forgotten
// who had the lock, and may give its vote a second time: with it, two holders can
// have a majority each. Two things help. Members that keep their data through a
// crash do not forget (for Redis that is appendfsync always). For others, keep a
// member that crashed out for longer than the longest TTL in use, so that all
// locks that it forgot are over before it votes again. That is called a delayed
// restart, and nothing but whoever starts the member can do it. The second holder
// still has the larger token, as long as a majority knows the last one (usually all
// members do), or if the members take their tokens from clocks that agree, as Redis
// does here: a resource that checks it is safe.
//
// The members count time, each with its own clock. A clock that is set forward ends
// locks early there; on a majority of members that makes a second holder too.
//
// A majority must be reachable. With three members one may fail, with five two.
// An even number tolerates no more than one less and is refused.
package quorum
