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
	answers chan memberAnswer // has room for all: of each member one to Acquire and one to RaiseToken
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
	r := &round{s: s, a: a, ctx: ctx, answers: make(chan memberAnswer, 2*len(s.members))}
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
			if got.raised {
				b.countRaised(got.member, got.token, got.err)
				continue
			}
			raise := b.count(got.member, got.answer)
			r.giveToken(raise, b.token)
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
	r.answers <- got
}

// giveToken gives the token of the vote to members that grant the lock with another one, after the calls
// that are under way.
func (r *round) giveToken(members set, token uint64) {
	for i := range members.all() {
		r.s.enqueueCall(r.a, i, func(i int) {
			if has := r.a.tokenAt(i); has != 0 && has != token {
				raised, err := r.s.members[i].raiseToken(r.ctx, r.a, token)
				r.answers <- memberAnswer{member: i, answer: answer{token: raised, err: err}, raised: true}
			}
		})
	}
}
