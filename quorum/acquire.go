package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

const (
	// maxVotes is how often one Acquire votes if the votes are split, so that a caller
	// that does not wait is seldom refused a free lock.
	maxVotes = 3
	// The pause after a split vote is drawn from a window. The longest one has room for the votes of
	// maxSplitTimeouts contenders, if each takes a MemberTimeout.
	minSplitWindow   = 500 * time.Microsecond
	maxSplitTimeouts = 16
	// maxPause is the longest pause within Acquire, which shortens the lease. A longer one is left
	// to the waiter.
	maxPause = 250 * time.Millisecond
)

var (
	errBusy       = errors.New("another attempt of this owner is under way")
	errUnanswered = fmt.Errorf("%w: it did not answer in time", driver.ErrUnreachable)
	errTooLate    = fmt.Errorf("%w: the answers took longer than the lock lasts", driver.ErrUnreachable)
	errReleased   = errors.New("it was released while it was acquired")
)

// Acquire implements driver.Store. It asks all members at once and returns when a
// majority has decided.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	if err := s.sameServer(); err != nil {
		return driver.Grant{}, err
	}
	start := time.Now()
	splits := 0
	if a := s.find(&driver.Grant{Name: req.Name, Owner: req.Owner}); a != nil {
		grant, err := s.reacquire(ctx, a, &req)
		if err == nil || !errors.Is(err, driver.ErrNotHeld) {
			return grant, err
		}
		a.locked(func() { splits = a.splits })
	}
	for votes := 1; ; votes++ {
		a := s.newAcquisition(&req)
		s.remember(a)
		v := s.vote(ctx, a, start)
		if v.err == nil {
			return a.grant(), nil
		}
		if !v.split {
			return driver.Grant{}, v.err
		}
		splits++
		pause := s.splitBackoff(time.Since(v.sent), v.contenders, splits)
		if votes == maxVotes || pause > maxPause {
			a.locked(func() { a.splits = splits })
			s.attemptSplit(a.owner, pause)
			return driver.Grant{}, &driver.HeldError{Name: req.Name, Remaining: pause}
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return driver.Grant{}, err
		}
	}
}

// reacquire is Acquire for an owner that asked before. If it holds the lock, its TTL starts
// again. ErrNotHeld says that nothing of it is left, and that it may ask anew.
//
// A shorter TTL does not become that of the acquisition: the first grant promises its own.
func (s *Store) reacquire(ctx context.Context, a *acquisition, req *driver.Request) (driver.Grant, error) {
	a.mu.Lock()
	ended, token := a.ended, a.token
	if token != 0 && !ended && req.TTL > a.ttl {
		a.ttl, a.promise, a.needed = req.TTL, req.TTL-drift(req.TTL), req.TTL
		for i := range a.at {
			a.at[i].ttl = req.TTL
		}
	}
	a.mu.Unlock()
	switch {
	case ended:
		return driver.Grant{}, driver.ErrNotHeld
	case token == 0:
		return driver.Grant{}, errBusy
	}
	grant := a.grant()
	grant.TTL = min(grant.TTL, req.TTL-drift(req.TTL))
	errs := s.renew(ctx, []driver.Grant{grant})
	if errs == nil {
		return grant, nil
	}
	if errors.Is(errs[0], driver.ErrNotHeld) {
		// A few members may still hold it, and would block the next attempt.
		if err := s.release(ctx, a); !isAnswer(err) {
			return driver.Grant{}, err
		}
	}
	return driver.Grant{}, errs[0]
}

// splitBackoff returns the pause after a split vote. It is random, so that contenders return
// one after another, and grows with their number and with the split votes in a row.
func (s *Store) splitBackoff(took time.Duration, contenders, splits int) time.Duration {
	window := max(took, minSplitWindow) * time.Duration(contenders+1) << min(splits-1, 8)
	window = min(window, maxSplitTimeouts*s.timeout)
	return window/4 + rand.N(window)
}

// verdict is the outcome of a vote.
type verdict struct {
	sent       time.Time
	err        error // nil if the lock was granted
	split      bool  // a majority answered, but no contender has a majority
	contenders int   // the others that got votes
}

// vote asks all members for a, and undoes it if it cannot be granted.
func (s *Store) vote(ctx context.Context, a *acquisition, start time.Time) verdict {
	b := newBallot(len(s.members), s.majority, s.raises)
	s.withWatch(a.owner, func(w *watch) { // the attempt sees all releases before it
		w.woken = 0
		w.endPauseLocked()
	})
	r := s.startRound(ctx, a)
	v := verdict{sent: r.deadline.began}
	interrupted := r.collect(ctx, &b)
	s.learn(&b, v.sent)
	same := s.sameServer()
	if interrupted == nil && same == nil && b.won() {
		if v.err = s.grant(a, &b, start); v.err == nil {
			return v
		}
	}
	unsure := s.undo(ctx, a, &b)
	held := b.heldBy(a.name)
	switch {
	case same != nil:
		v.err = same
	case interrupted != nil:
		v.err = interrupted
	case v.err != nil:
	case held != nil:
		v.err = held
		s.withWatch(a.owner, func(w *watch) {
			w.free = b.granted
			w.checkLocked()
		})
	case b.answered() >= b.majority && b.refused != 0:
		v.split = true
		_, v.contenders = b.blockers()
		v.err = &driver.HeldError{Name: a.name}
	default:
		v.err = s.unreachable(b.answered(), b.errors())
	}
	if !unsure && !v.split {
		s.forget(a)
	}
	return v
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

// drift returns by how much the clocks of the members may differ within a TTL. The
// implementations of Redlock agree on it.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// grant grants an acquisition that has won its vote.
func (s *Store) grant(a *acquisition, b *ballot, start time.Time) error {
	needed := b.promised()
	promise := needed - drift(a.ttl)
	if time.Since(start) >= promise {
		return errTooLate
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return errReleased
	}
	a.token, a.needed, a.promise = b.token, needed, promise
	return nil
}

// undo gives back what a failed attempt got, or may have got, which makes it unsure. It waits
// for members that certainly granted, so that they do not block the next contender.
func (s *Store) undo(ctx context.Context, a *acquisition, b *ballot) (unsure bool) {
	a.locked(func() { a.ended = true })
	deadline := s.newDeadline(ctx)
	done := make(chan struct{}, b.members)
	waits := 0
	for i := range b.members {
		err := b.outcome(i)
		if errors.Is(err, driver.ErrHeld) { // any other error may have come after the lock was granted
			deadline.done()
			continue
		}
		sure := err == nil
		unsure = unsure || !sure
		if sure {
			waits++
		}
		s.enqueueCall(a, i, func(i int) {
			_ = s.giveBack(deadline, a, i) // it expires anyway
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
