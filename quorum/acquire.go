package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// maxVotes is how often one attempt votes, if the votes are split. Whoever
	// does not wait for the lock is seldom refused for no reason that way.
	maxVotes = 3
	// Limits of the time from which the pause after a split vote is drawn.
	minRecess = 500 * time.Microsecond
	maxRecess = 200 * time.Millisecond
)

var (
	errBusy       = errors.New("another attempt of this owner is under way")
	errUnanswered = fmt.Errorf("%w: it did not answer in time", driver.ErrUnreachable)
	errTooLate    = fmt.Errorf("%w: the answers took longer than the lock lasts", driver.ErrUnreachable)
)

// Acquire implements driver.Store. It asks all members at once and returns when a
// majority has decided.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Grant{}, err
	}
	defer s.end()
	if err := s.sameServer(); err != nil {
		return driver.Grant{}, err
	}
	start := time.Now()
	splits := 0
	if c := s.lookup(req.Owner, req.Name); c != nil {
		grant, err := s.again(ctx, c, &req)
		if err == nil || !errors.Is(err, driver.ErrNotHeld) {
			return grant, err
		}
		splits = c.splits()
	}
	for votes := 1; ; votes++ {
		c := s.newClaim(&req)
		s.remember(c)
		v := s.vote(ctx, c, start)
		if v.err == nil {
			return c.grant(), nil
		}
		if !v.split {
			return driver.Grant{}, v.err
		}
		splits++
		pause := recess(time.Since(v.sent), v.rivals, splits)
		if votes == maxVotes {
			c.adjourned(splits)
			s.adjourn(c.owner, pause)
			return driver.Grant{}, &driver.HeldError{Name: req.Name, Remaining: pause}
		}
		if err := sleep(ctx, pause); err != nil {
			return driver.Grant{}, err
		}
	}
}

// again is for an owner that asked before. If it holds the lock its TTL starts
// again. ErrNotHeld says that nothing of it is left, and that it may ask anew.
//
// A TTL that is shorter than before does not become that of the claim: the first grant
// can still be renewed, and promises its own.
func (s *Store) again(ctx context.Context, c *claim, req *driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	over, token := c.over, c.token
	if token != 0 && !over && req.TTL > c.ttl {
		c.ttl, c.promise, c.needed = req.TTL, req.TTL-s.rules.drift(req.TTL), req.TTL
		for i := range c.seats {
			c.seats[i].ttl = req.TTL
		}
	}
	c.mu.Unlock()
	switch {
	case over:
		return driver.Grant{}, driver.ErrNotHeld
	case token == 0:
		return driver.Grant{}, errBusy
	}
	grant := c.grant()
	grant.TTL = min(grant.TTL, req.TTL-s.rules.drift(req.TTL))
	errs := s.renew(ctx, []driver.Grant{grant})
	switch {
	case errs == nil:
		return grant, nil
	case errors.Is(errs[0], driver.ErrNotHeld):
		// A few members may have it yet, and are in the way of the next claim.
		if err := s.release(ctx, c); !isAnswer(err) {
			return driver.Grant{}, err
		}
	}
	return driver.Grant{}, errs[0]
}

// recess is the pause after a split vote: random, so that those who split it come
// back one after another, and longer the more of them there are and the more
// votes in a row were split.
func recess(took time.Duration, rivals, splits int) time.Duration {
	window := max(took, minRecess) * time.Duration(rivals+1) << min(splits-1, 8)
	window = min(window, maxRecess)
	return window/4 + rand.N(window)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// verdict is how a vote ended.
type verdict struct {
	sent   time.Time
	err    error // nil if the claim was granted
	split  bool  // nobody has a majority, though a majority answered
	rivals int   // who got votes as well
}

// reply is an answer on its way to the one who counts.
type reply struct {
	member int
	answer
	raised bool // to RaiseToken, otherwise to Acquire
}

// poll asks the members for one claim.
type poll struct {
	s       *Store
	c       *claim
	span    *span
	req     driver.Request
	replies chan reply // has room for all
}

// vote asks everybody for c, and undoes it if it cannot be granted.
func (s *Store) vote(ctx context.Context, c *claim, start time.Time) verdict {
	n := len(s.members)
	p := &poll{s: s, c: c, span: s.newSpan(ctx), replies: make(chan reply, 2*n)}
	p.req = driver.Request{Name: c.name, Owner: c.alias, TTL: c.ttl, Holder: c.holder}
	b := newBallot(n, s.rules.majority, s.raises && s.rules.writeBack)
	v := verdict{sent: p.span.began}
	if s.raises {
		p.req.Floor = s.known.at(v.sent)
	}
	s.convene(c.owner)
	ask := p.ask // one for all
	for i := range n {
		s.sit(c, i, ask)
	}
	cut := p.collect(ctx, &b)
	s.learn(&b, v.sent)

	same := s.sameServer()
	if cut == nil && same == nil && b.won() {
		if v.err = s.grant(c, &b, start); v.err == nil {
			return v
		}
	}
	unsure := s.undo(ctx, c, &b)
	held := b.heldBy(c.name)
	switch {
	case same != nil:
		v.err = same
	case cut != nil:
		v.err = cut
	case v.err != nil:
	case held != nil:
		v.err = held
		s.blocked(c.owner, b.granted)
	case b.answered() >= b.majority && b.refused != 0:
		v.split, v.rivals = true, b.rivals()
		v.err = &driver.HeldError{Name: c.name}
	default:
		v.err = s.unreachable(b.answered(), b.errors())
	}
	if !unsure && !v.split {
		s.forget(c)
	}
	return v
}

// collect counts answers until the vote is decided. The error is the end of ctx.
func (p *poll) collect(ctx context.Context, b *ballot) error {
	over := p.span.limited.Done()
	var late <-chan time.Time
	settled := p.s.settled.Load()
	for !(b.won() || b.lost()) || !settled && b.asked != 0 {
		select {
		case r := <-p.replies:
			if r.raised {
				b.countRaised(r.member, r.token, r.err)
				continue
			}
			raise := b.count(r.member, r.answer)
			for i := range b.members {
				if raise.has(i) {
					token := b.token
					p.s.sit(p.c, i, func(i int) { p.raise(i, token) })
				}
			}
		case <-over: // members know that themselves; this is for one that does not
			over, late = nil, time.After(p.s.timeout)
		case <-late:
			b.giveUp(errUnanswered)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !settled {
		p.s.settled.Store(true)
	}
	return nil
}

// ask asks one member.
func (p *poll) ask(i int) {
	defer p.span.done()
	m := p.s.members[i]
	if err := p.s.identify(p.span.lasting, m); err != nil {
		p.replies <- reply{member: i, answer: answer{err: err}}
		return
	}
	limited, cancel := p.span.context()
	defer cancel()
	grant, err := m.acquire(limited, &p.req)
	if err != nil {
		p.c.failed(i, err)
		a := answer{err: err}
		if held, ok := errors.AsType[*driver.HeldError](err); ok {
			a = answer{held: held}
		}
		p.replies <- reply{member: i, answer: a}
		return
	}
	token := p.c.granted(i, &grant)
	p.replies <- reply{member: i, answer: answer{token: grant.Token, ttl: grant.TTL}}
	if token > grant.Token && p.s.raises {
		// Too late to be counted, but the more members know the token, the more
		// may forget it.
		p.raise(i, token)
	}
}

// raise raises the token that one member gave.
func (p *poll) raise(i int, token uint64) {
	p.c.mu.Lock()
	grant := p.c.at(i)
	p.c.mu.Unlock()
	grant, err := p.s.members[i].raise(p.span.lasting, grant, token)
	if err == nil {
		p.c.granted(i, &grant)
	}
	p.replies <- reply{member: i, answer: answer{token: grant.Token, err: err}, raised: true}
}

// learn remembers the largest token that was seen.
func (s *Store) learn(b *ballot, sent time.Time) {
	if !s.raises {
		return
	}
	token := uint64(0)
	for i := range b.answers {
		token = max(token, b.answers[i].token)
		if held := b.answers[i].held; held != nil {
			token = max(token, held.Token)
		}
	}
	s.known.saw(token, sent)
}

// grant makes a claim that has a majority its owner's.
func (s *Store) grant(c *claim, b *ballot, start time.Time) error {
	needed := b.promised()
	promise := needed - s.rules.drift(c.ttl)
	if time.Since(start) >= promise {
		return errTooLate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return errReleased
	}
	c.token, c.needed, c.promise = b.token, needed, promise
	return nil
}

// errReleased is for whoever asks and releases at the same time.
var errReleased = errors.New("it was released while it was acquired")

// undo gives back what a vote that failed got, or may have got, which makes it
// unsure. It waits where something was certainly got, so that it is not in the way
// of whoever is next.
func (s *Store) undo(ctx context.Context, c *claim, b *ballot) (unsure bool) {
	c.finish()
	sp := s.newSpan(ctx)
	done := make(chan struct{}, b.members)
	waits := 0
	for i := range b.members {
		var err error
		switch a := &b.answers[i]; {
		case b.asked.has(i):
			err = errUnanswered
		case a.held != nil:
			err = a.held
		case !b.granted.has(i):
			err = a.err
		}
		if !s.rules.mayHold(err) {
			sp.done()
			continue
		}
		sure := err == nil
		if sure {
			waits++
		} else {
			unsure = true
		}
		s.sit(c, i, func(i int) {
			_ = s.giveBack(sp, c, i) // it expires anyway
			if sure {
				done <- struct{}{}
			}
		})
	}
	for range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return true
		}
	}
	return unsure
}
