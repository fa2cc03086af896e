package quorum

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// ballot counts the answers to one attempt and decides it. It makes no calls.
type ballot struct {
	members, majority int
	raises            bool // the members' tokens must become the same

	asked   set // members without an answer yet
	granted set
	refused set
	raising set // members whose token is being raised
	raised  set // members of granted that have stored token
	token   uint64
	answers []answer // by member
}

// answer is the answer of a member.
type answer struct {
	token  uint64
	ttl    time.Duration
	held   *driver.HeldError // if it refused
	err    error             // if it failed
	blocks int               // how many name the same holder: counted at the first that did
}

func newBallot(members, majority int, raises bool) ballot {
	return ballot{members: members, majority: majority, raises: raises, asked: allMembers(members), answers: make([]answer, members)}
}

// count counts an answer to Acquire. It returns the members whose token must be raised to
// b.token.
//
// The first majority decides the token: the largest of its tokens is larger than that of
// every earlier grant, because one of the members took part in that grant. A member that
// answers later with a larger one is not needed.
func (b *ballot) count(i int, got answer) (raise set) {
	b.asked.remove(i)
	b.answers[i] = got
	switch {
	case got.held != nil:
		b.refused.add(i)
		first := slices.IndexFunc(b.answers, func(other answer) bool { return other.blocks > 0 && b.sameHolder(other.held, got.held) })
		if first < 0 {
			first = i
		}
		b.answers[first].blocks++
		return 0
	case got.err != nil:
		return 0
	}
	b.granted.add(i)
	switch {
	case b.token != 0:
		return b.compare(i)
	case b.granted.len() < b.majority:
		return 0
	}
	for j := range b.granted.all() {
		b.token = max(b.token, b.answers[j].token)
	}
	for j := range b.granted.all() {
		raise |= b.compare(j)
	}
	return raise
}

// compare returns i if the token of the member must be raised.
func (b *ballot) compare(i int) (raise set) {
	switch token := b.answers[i].token; {
	case token == b.token || !b.raises:
		b.raised.add(i)
	case token < b.token:
		b.raising.add(i)
		raise.add(i)
	}
	return raise
}

// countRaised counts an answer to RaiseToken.
func (b *ballot) countRaised(i int, token uint64, err error) {
	b.raising.remove(i)
	switch {
	case err == nil && token == b.token:
		b.raised.add(i)
	case err == nil:
		b.answers[i].err = fmt.Errorf("its token became %d instead of %d", token, b.token)
	default:
		b.answers[i].err = err
	}
}

// giveUp counts members that have not answered as failed.
func (b *ballot) giveUp(err error) {
	for i := range b.asked.all() {
		b.count(i, answer{err: err})
	}
	for i := range b.raising.all() {
		b.countRaised(i, 0, err)
	}
}

func (b *ballot) won() bool { return b.raised.len() >= b.majority }

// lost reports whether the vote cannot be won any more, and the reason is known: another
// holder has a majority, no contender has one, or too few members answered.
func (b *ballot) lost() bool {
	possible := b.granted | b.asked
	if b.token != 0 {
		possible = b.raised | b.raising | b.asked
	}
	if possible.len() >= b.majority {
		return false
	}
	if n := b.answered(); n < b.majority {
		return n+b.asked.len() < b.majority
	}
	leader, _ := b.blockers()
	return leader.blocks >= b.majority || leader.blocks+b.asked.len() < b.majority
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

func (b *ballot) sameHolder(x, y *driver.HeldError) bool {
	return x.Holder == y.Holder && (x.Token == y.Token || !b.raises)
}

// heldBy describes the holder that has a majority, or returns nil.
func (b *ballot) heldBy(name string) *driver.HeldError {
	leader, _ := b.blockers()
	if leader.blocks < b.majority {
		return nil
	}
	held := *leader.held
	held.Name, held.Remaining = name, b.remaining()
	if !b.raises {
		held.Token = 0 // the members have different ones
	}
	return &held
}

// remaining returns the time until enough locks expire for a majority to be free.
func (b *ballot) remaining() time.Duration {
	var left []time.Duration
	for i := range b.refused.all() {
		left = append(left, b.answers[i].held.Remaining)
	}
	slices.Sort(left)
	missing := b.majority - b.granted.len()
	return left[min(max(missing, 1), len(left))-1]
}

// answered counts the members that granted or refused.
func (b *ballot) answered() int { return (b.granted | b.refused).len() }

// promised returns the shortest TTL of the members of the majority.
func (b *ballot) promised() time.Duration {
	ttl := driver.MaxTTL
	for i := range b.raised.all() {
		ttl = min(ttl, b.answers[i].ttl)
	}
	return ttl
}

// outcome returns the error of a member's Acquire, nil if it granted.
func (b *ballot) outcome(i int) error {
	switch got := &b.answers[i]; {
	case b.asked.has(i):
		return errUnanswered
	case got.held != nil:
		return got.held
	case !b.granted.has(i):
		return got.err
	}
	return nil
}

// errors returns why members failed, by member.
func (b *ballot) errors() []error {
	errs := make([]error, b.members)
	for i := range b.members {
		errs[i] = b.answers[i].err
	}
	return errs
}

// set is a set of members, by their index.
type set uint64

func (s set) has(i int) bool { return s&(1<<i) != 0 }
func (s *set) add(i int)     { *s |= 1 << i }
func (s *set) remove(i int)  { *s &^= 1 << i }
func (s set) len() int       { return bits.OnesCount64(uint64(s)) }

// all yields the members in order.
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(bits.TrailingZeros64(uint64(s))); s &= s - 1 {
		}
	}
}

// allMembers returns the set of n members.
func allMembers(n int) set { return 1<<n - 1 }
