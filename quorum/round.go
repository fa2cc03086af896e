package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// round is the calls of a vote: each member is asked once, and may have to raise its token.
type round struct {
	s       *Store
	a       *acquisition
	ctx     context.Context // of the caller
	sent    time.Time
	req     driver.Request
	answers chan memberAnswer // has room for all: of each member one to Acquire and three to RaiseToken
}

// memberAnswer is an answer of a member on its way to the ballot.
type memberAnswer struct {
	member int
	answer
	raised bool // to RaiseToken, otherwise to Acquire
}

func (s *Store) startRound(ctx context.Context, a *acquisition) *round {
	r := &round{s: s, a: a, ctx: ctx, sent: time.Now(), answers: make(chan memberAnswer, 4*len(s.members))}
	r.req = driver.Request{Name: a.name, Owner: a.alias, TTL: a.ttl, Holder: a.holder}
	if s.agreesOnTokens {
		r.req.Floor = s.forecast.guess(r.sent)
	}
	for i := range s.members {
		s.enqueueCall(a, i, r.ask)
	}
	return r
}

// collect counts answers until the vote is decided. If ctx ends first, collect returns the error of
// an interrupted call. The first round of a store waits for all members, so that it knows their
// servers, but not for long if a member does not keep to its limits.
func (r *round) collect(ctx context.Context, b *ballot) error {
	var late <-chan time.Time
	first := !r.s.identified.Load()
	if first {
		late = time.After(2 * r.s.timeout)
	}
	for !(b.won() || b.lost()) || first && b.pending != 0 {
		select {
		case got := <-r.answers:
			var raise set
			if got.raised {
				raise = b.countRaised(got.member, got.token, got.err)
			} else {
				raise = b.count(got.member, got.answer)
			}
			for i := range raise.all() {
				token := b.token
				r.s.enqueueCall(r.a, i, func(i int) { r.raise(i, token) })
			}
		case <-late:
			first = false
		case <-ctx.Done():
			return interrupted(ctx)
		}
	}
	r.s.identified.Store(true)
	return nil
}

func (r *round) ask(i int) {
	m := r.s.members[i]
	if err := r.s.identify(r.ctx, m); err != nil {
		r.answers <- memberAnswer{member: i, answer: answer{err: err}}
		return
	}
	grant, err := m.acquire(r.ctx, &r.req)
	token := r.a.note(i, &grant, err)
	got := answer{token: grant.Token, ttl: grant.TTL}
	if got.held, _ = errors.AsType[*driver.HeldError](err); got.held == nil {
		got.err = err
	}
	r.answers <- memberAnswer{member: i, answer: got}
	if err == nil && token != 0 && token != grant.Token && r.s.agreesOnTokens {
		// The vote is decided, but the more members know the token, the more may forget it.
		r.raise(i, token)
	}
}

// alignTokens gives the token of the grant to members that answered with another one, too late for the
// decision and too early to know of it. ask does so for those that answer later.
func (r *round) alignTokens() {
	if !r.s.agreesOnTokens {
		return
	}
	for i := range r.s.members {
		if r.a.memberGrant(i).Token != 0 && r.a.hasOtherToken(i) {
			r.s.enqueueCall(r.a, i, func(i int) {
				if r.a.hasOtherToken(i) { // after the calls before
					r.raise(i, r.a.grant().Token)
				}
			})
		}
	}
}

func (r *round) raise(i int, token uint64) {
	grant, err := r.s.members[i].raiseToken(r.ctx, r.a, token)
	r.answers <- memberAnswer{member: i, answer: answer{token: grant.Token, err: err}, raised: true}
}
