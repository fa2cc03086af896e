package redlock

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
	floor   uint64
	answers chan memberAnswer // has room for all: of each member one to Acquire and three to RaiseToken
}

// memberAnswer is an answer of a member on its way to the ballot.
type memberAnswer struct {
	member int
	answer
	raised bool // to RaiseToken, otherwise to Acquire
}

// startRound asks all members for tokens from the latest of their clocks on. So they mostly grant the same
// tokens, and a lock takes one round trip.
func (s *Store) startRound(ctx context.Context, a *acquisition) *round {
	r := &round{s: s, a: a, ctx: ctx, answers: make(chan memberAnswer, 4*len(s.members))}
	for _, m := range s.members {
		r.floor = max(r.floor, m.store.Clock())
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
	got := memberAnswer{member: i}
	got.token, got.err = r.s.members[i].acquire(r.ctx, r.a, r.floor)
	if held, refused := errors.AsType[*driver.HeldError](got.err); refused {
		got.held, got.err = held, nil
	}
	granted := got.held == nil && got.err == nil
	r.answers <- got
	if token := r.a.grant().Token; granted && token != 0 && token != got.token {
		// The vote is decided, but the more members know the token, the more may forget it.
		r.raise(i, token)
	}
}

// alignTokens gives the token of the grant to members that answered with another one, too late for the
// decision and too early to know of it. ask does so for those that answer later.
func (r *round) alignTokens() {
	token := r.a.grant().Token
	for i := range r.s.members {
		if has := r.a.tokenAt(i); has != 0 && has != token {
			r.s.enqueueCall(r.a, i, func(i int) {
				if r.a.tokenAt(i) != token { // after the calls before
					r.raise(i, token)
				}
			})
		}
	}
}

func (r *round) raise(i int, token uint64) {
	raised, err := r.s.members[i].raiseToken(r.ctx, r.a, token)
	r.answers <- memberAnswer{member: i, answer: answer{token: raised, err: err}, raised: true}
}
