package redlock

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// ballot counts the answers to one attempt and decides it. It makes no calls.
//
// The first majority decides the token: the largest of its tokens is larger than that of every earlier
// grant, because one of the members took part in that grant. All members that grant get it.
type ballot struct {
	majority int

	pending set // members without an answer yet
	granted set
	refused set
	raising set      // members that are given the token
	raised  set      // members that have stored the token
	token   uint64   // of the vote; zero until a majority has granted
	answers []answer // by member
	errs    []error  // why members failed, by member
}

type answer struct {
	token  uint64
	held   *driver.HeldError // if it refused
	err    error             // if it failed
	blocks int               // how many members name this holder; counted at the first of them
}

func newBallot(members int) ballot {
	return ballot{majority: members/2 + 1, pending: allMembers(members), answers: make([]answer, members), errs: make([]error, members)}
}

// count counts an answer to Acquire. It returns the members that must be given the token.
func (b *ballot) count(i int, got answer) (raise set) {
	b.pending.remove(i)
	b.answers[i], b.errs[i] = got, got.err
	switch {
	case got.held != nil:
		b.refused.add(i)
		first := slices.IndexFunc(b.answers, func(other answer) bool { return other.blocks > 0 && sameHolder(other.held, got.held) })
		if first < 0 {
			first = i
		}
		b.answers[first].blocks++
	case got.err == nil:
		b.granted.add(i)
		if b.token != 0 {
			return b.compare(i)
		}
		if b.granted.len() < b.majority {
			return 0
		}
		for i := range b.granted.all() {
			b.token = max(b.token, b.answers[i].token)
		}
		for i := range b.granted.all() {
			raise |= b.compare(i)
		}
	}
	return raise
}

// compare returns the set of i if member i must be given the token of the vote.
func (b *ballot) compare(i int) (raise set) {
	if b.answers[i].token == b.token {
		b.raised.add(i)
		return 0
	}
	b.raising.add(i)
	return 1 << i
}

// countRaised counts an answer to RaiseToken.
func (b *ballot) countRaised(i int, token uint64, err error) {
	b.raising.remove(i)
	switch {
	case err == nil && token == b.token:
		b.raised.add(i)
	case err == nil:
		b.errs[i] = fmt.Errorf("its token became %d instead of %d", token, b.token)
	default:
		b.errs[i] = err
	}
}

func (b *ballot) won() bool { return b.raised.len() >= b.majority }

// lost reports whether the vote cannot be won any more, and the reason is known: another
// holder has a majority, no contender has one, or too few members answered.
func (b *ballot) lost() bool {
	possible := b.granted | b.pending
	if b.token != 0 {
		possible = b.raised | b.raising | b.pending
	}
	if possible.len() >= b.majority {
		return false
	}
	if n := b.answered(); n < b.majority {
		return n+b.pending.len() < b.majority
	}
	leader, _ := b.blockers()
	return leader.blocks >= b.majority || leader.blocks+b.pending.len() < b.majority
}

// blockers returns the answer with the holder that most refusing members name, and how many
// holders they name.
func (b *ballot) blockers() (leader *answer, holders int) {
	leader = &b.answers[0]
	for i := range b.answers {
		got := &b.answers[i]
		if got.blocks > leader.blocks {
			leader = got
		}
		holders += min(got.blocks, 1)
	}
	return leader, holders
}

func sameHolder(x, y *driver.HeldError) bool { return x.Holder == y.Holder && x.Token == y.Token }

// heldBy describes the holder that has a majority, or returns nil.
func (b *ballot) heldBy(name string) *driver.HeldError {
	leader, _ := b.blockers()
	if leader.blocks < b.majority {
		return nil
	}
	held := *leader.held
	held.Name = name
	return &held
}

// answered counts the members that granted or refused.
func (b *ballot) answered() int { return (b.granted | b.refused).len() }

// set is a set of members, by their index.
type set uint64

func (s *set) add(i int)     { *s |= 1 << i }
func (s *set) remove(i int)  { *s &^= 1 << i }
func (s set) has(i int) bool { return s&(1<<i) != 0 }
func (s set) len() int       { return bits.OnesCount64(uint64(s)) }

// all yields the members in order.
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(bits.TrailingZeros64(uint64(s))); s &= s - 1 {
		}
	}
}

func allMembers(n int) set { return 1<<n - 1 }
