package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// round asks each member once for an acquisition.
type round struct {
	s        *Store
	a        *acquisition
	deadline *sharedDeadline
	req      driver.Request
	replies  chan reply // has room for all
}

// reply is an answer of a member on its way to the ballot.
type reply struct {
	member int
	answer
	raised bool // to RaiseToken, otherwise to Acquire
}

func (s *Store) startRound(ctx context.Context, a *acquisition) *round {
	r := &round{s: s, a: a, deadline: s.newDeadline(ctx), replies: make(chan reply, 2*len(s.members))}
	r.req = driver.Request{Name: a.name, Owner: a.alias, TTL: a.ttl, Holder: a.holder}
	if s.raises {
		r.req.Floor = s.known.at(r.deadline.began)
	}
	ask := r.ask // one for all
	for i := range s.members {
		s.enqueueCall(a, i, ask)
	}
	return r
}

// collect counts answers until the vote is decided. If ctx ends first, collect returns its
// cause. The first round of a store waits for all members, so that it knows their servers.
func (r *round) collect(ctx context.Context, b *ballot) error {
	expired := r.deadline.limited.Done()
	var late <-chan time.Time
	identified := r.s.identified.Load()
	for !(b.won() || b.lost()) || !identified && b.asked != 0 {
		select {
		case got := <-r.replies:
			if got.raised {
				b.countRaised(got.member, got.token, got.err)
				continue
			}
			raise := b.count(got.member, got.answer)
			for i := range raise.all() {
				token := b.token
				r.s.enqueueCall(r.a, i, func(i int) { r.raise(i, token) })
			}
		case <-expired: // members keep to the deadline; the timer is for one that does not
			expired, late = nil, time.After(r.s.timeout)
		case <-late:
			b.giveUp(errUnanswered)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !identified {
		r.s.identified.Store(true)
	}
	return nil
}

// ask asks one member.
func (r *round) ask(i int) {
	defer r.deadline.done()
	m := r.s.members[i]
	if err := r.s.identify(r.deadline.values, m); err != nil {
		r.replies <- reply{member: i, answer: answer{err: err}}
		return
	}
	limited, cancel := r.deadline.context()
	defer cancel()
	grant, err := m.acquire(limited, &r.req)
	token := r.a.note(i, &grant, err)
	if err != nil {
		got := answer{err: err}
		if held, ok := errors.AsType[*driver.HeldError](err); ok {
			got = answer{held: held}
		}
		r.replies <- reply{member: i, answer: got}
		return
	}
	r.replies <- reply{member: i, answer: answer{token: grant.Token, ttl: grant.TTL}}
	if token > grant.Token && r.s.raises {
		// The vote is decided, but the more members know the token, the more may forget it.
		r.raise(i, token)
	}
}

// raise raises the token of one member.
func (r *round) raise(i int, token uint64) {
	grant, err := r.s.members[i].raise(r.deadline.values, r.a.memberGrant(i), token)
	if err == nil {
		r.a.note(i, &grant, nil)
	}
	r.replies <- reply{member: i, answer: answer{token: grant.Token, err: err}, raised: true}
}
