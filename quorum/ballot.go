package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// ballot counts the answers to one attempt and decides it. It makes no calls.
type ballot struct {
	members, majority int
	raises            bool // tokens are to be the same

	asked   set // and not answered yet
	granted set
	refused set
	failed  set
	raising set // whose token is being raised
	raised  set // those of granted that have stored token
	token   uint64
	answers []answer // by member
}

// answer is what a member said.
type answer struct {
	token uint64
	ttl   time.Duration
	held  *driver.HeldError // who is in the way, if it refused
	err   error             // if it failed
}

func newBallot(members, majority int, raises bool) ballot {
	return ballot{
		members:  members,
		majority: majority,
		raises:   raises,
		asked:    everybody(members),
		answers:  make([]answer, members),
	}
}

// count counts an answer to Acquire. It returns the members whose token is to be
// raised to b.token now.
//
// The token is settled by the first majority: the largest of its tokens is larger
// than that of every earlier grant, because one of the members took part in that
// one. A member that answers later with a larger one still is not needed.
func (b *ballot) count(i int, a answer) (raise set) {
	b.asked.remove(i)
	b.answers[i] = a
	switch {
	case a.held != nil:
		b.refused.add(i)
		return 0
	case a.err != nil:
		b.failed.add(i)
		return 0
	}
	b.granted.add(i)
	switch {
	case b.token != 0:
		return b.compare(i)
	case b.granted.len() < b.majority:
		return 0
	}
	for j := range b.members {
		if b.granted.has(j) {
			b.token = max(b.token, b.answers[j].token)
		}
	}
	for j := range b.members {
		if b.granted.has(j) {
			raise |= b.compare(j)
		}
	}
	return raise
}

// compare decides what is to become of the token of a member that granted.
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

// giveUp counts as failed whoever has not answered.
func (b *ballot) giveUp(err error) {
	for i := range b.members {
		if b.asked.has(i) {
			b.count(i, answer{err: err})
		}
		if b.raising.has(i) {
			b.countRaised(i, 0, err)
		}
	}
}

func (b *ballot) won() bool { return b.raised.len() >= b.majority }

// lost says whether it cannot be won any more, and whether it is known why: because
// somebody has a majority, because nobody has, or because too few answered.
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
	_, n := b.leader()
	return n >= b.majority || n+b.asked.len() < b.majority
}

// leader returns whoever refused members name most often, and how often.
func (b *ballot) leader() (held *driver.HeldError, n int) {
	for i := range b.members {
		if !b.refused.has(i) {
			continue
		}
		same := 0
		for j := range b.members {
			if b.refused.has(j) && b.sameHolder(b.answers[i].held, b.answers[j].held) {
				same++
			}
		}
		if same > n {
			held, n = b.answers[i].held, same
		}
	}
	return held, n
}

// rivals counts the different holders that were in the way.
func (b *ballot) rivals() (n int) {
	for i := range b.members {
		if !b.refused.has(i) {
			continue
		}
		known := false
		for j := range i {
			known = known || b.refused.has(j) && b.sameHolder(b.answers[i].held, b.answers[j].held)
		}
		if !known {
			n++
		}
	}
	return n
}

func (b *ballot) sameHolder(x, y *driver.HeldError) bool {
	return x.Holder == y.Holder && (x.Token == y.Token || !b.raises)
}

// heldBy describes the one who holds a majority, or returns nil.
func (b *ballot) heldBy(name string) *driver.HeldError {
	leader, n := b.leader()
	if n < b.majority {
		return nil
	}
	held := *leader
	held.Name = name
	held.Remaining = b.remaining()
	if !b.raises {
		held.Token = 0 // which of the members' it is, is not known
	}
	return &held
}

// remaining is the time until so many locks of others expire that a majority is free.
func (b *ballot) remaining() time.Duration {
	var left []time.Duration
	for i := range b.members {
		if b.refused.has(i) {
			left = append(left, b.answers[i].held.Remaining)
		}
	}
	slices.Sort(left)
	missing := b.majority - b.granted.len()
	return left[min(max(missing, 1), len(left))-1]
}

// answered counts the members that know what they did.
func (b *ballot) answered() int { return (b.granted | b.refused).len() }

// promised is the shortest TTL of those who made the majority.
func (b *ballot) promised() time.Duration {
	ttl := driver.MaxTTL
	for i := range b.members {
		if b.raised.has(i) {
			ttl = min(ttl, b.answers[i].ttl)
		}
	}
	return ttl
}

// errors returns why members failed, by member.
func (b *ballot) errors() []error {
	errs := make([]error, b.members)
	for i := range b.members {
		errs[i] = b.answers[i].err
	}
	return errs
}
