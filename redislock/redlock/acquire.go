package redlock

import (
	"cmp"
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
	// The pause after a split vote is drawn from a window of maxSplitTimeouts MemberTimeouts at most.
	minSplitWindow   = 500 * time.Microsecond
	maxSplitTimeouts = 16
	// maxPause is the longest pause within Acquire, which shortens the lease. A longer one is left
	// to the waiter, and so is one that would use up more than half of the TTL.
	maxPause = 250 * time.Millisecond
)

var (
	errBusy       = errors.New("another attempt of this owner is under way")
	errUnanswered = fmt.Errorf("%w: it did not answer in time", driver.ErrUnreachable)
	errTooLate    = fmt.Errorf("%w: the answers took longer than the lock lasts", driver.ErrUnreachable)
	errReleased   = errors.New("it was released while it was acquired")
	errSplit      = errors.New("a majority answered, but no contender has a majority")
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
	s.mu.Lock()
	a := s.findLocked(&driver.Grant{Name: req.Name, Owner: req.Owner})
	s.mu.Unlock()
	if a != nil {
		grant, err := s.reacquire(ctx, a, &req)
		if !errors.Is(err, driver.ErrNotHeld) {
			return grant, err
		}
		var pause time.Duration
		a.locked(func() { splits, pause = a.splits, time.Until(a.pausedUntil) })
		if pause > 0 { // the pause after the last split vote is not over
			return driver.Grant{}, s.leavePause(a, pause)
		}
	}
	a = nil
	for votes := 1; ; votes++ {
		previous := a
		a = s.newAcquisition(&req)
		if !s.remember(a, previous) {
			return driver.Grant{}, errReleased
		}
		sent := time.Now()
		contenders, err := s.vote(ctx, a, start)
		switch {
		case err == nil:
			return a.grant(), nil
		case !errors.Is(err, errSplit):
			return driver.Grant{}, err
		}
		splits++
		pause := s.splitBackoff(time.Since(sent), contenders, splits)
		if votes == maxVotes || pause > maxPause || time.Since(start)+pause > req.TTL/2 {
			a.locked(func() { a.splits, a.pausedUntil = splits, time.Now().Add(pause) })
			return driver.Grant{}, s.leavePause(a, pause)
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return driver.Grant{}, err
		}
	}
}

// reacquire is Acquire for an owner that asked before. If the owner holds the lock, its TTL starts
// again. ErrNotHeld says that the owner has nothing any more, and may ask anew.
//
// The members keep the TTL of the first request: a shorter one would break the promise of the
// first grant, and a longer one is more than they renew the lock for.
func (s *Store) reacquire(ctx context.Context, a *acquisition, req *driver.Request) (driver.Grant, error) {
	grant := a.grant()
	switch _, ended := a.state(); {
	case ended:
		return driver.Grant{}, driver.ErrNotHeld
	case grant.Token == 0:
		return driver.Grant{}, errBusy
	}
	grant.TTL = min(grant.TTL, req.TTL-drift(req.TTL))
	errs := s.renew(ctx, []*acquisition{a})
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

// drift is by how much the clocks of the members may differ within a TTL. The implementations of
// Redlock agree on it.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// vote asks all members for a, and undoes it if it cannot be granted. With errSplit it returns how many
// others got votes.
func (s *Store) vote(ctx context.Context, a *acquisition, start time.Time) (contenders int, err error) {
	b := newBallot(len(s.members))
	s.withWatch(a.owner, func(w *watch) { w.woken, w.paused = 0, time.Time{} }) // the attempt sees all releases before it
	r := s.startRound(ctx, a)
	interrupted := r.collect(ctx, &b)
	err = cmp.Or(s.sameServer(), interrupted)
	if err == nil && b.won() {
		if err = s.grant(a, b.token, start); err == nil {
			r.giveToken(b.pending, b.token) // the more members know the token, the more may forget it
			return 0, nil
		}
	}
	unsure := s.undo(ctx, a, &b)
	held := b.heldBy(a.name)
	switch {
	case err != nil:
	case held != nil:
		err = held
		s.withWatch(a.owner, func(w *watch) {
			w.free = b.granted
			w.checkLocked()
		})
	case b.answered() >= b.majority && b.refused != 0:
		_, contenders = b.blockers()
		err = errSplit
	default:
		err = s.noMajority(b.errs)
	}
	switch {
	case !unsure && !errors.Is(err, errSplit):
		s.forget(a)
	case errors.Is(err, errSplit), errors.Is(err, driver.ErrHeld):
		a.locked(func() { a.expires = time.Now().Add(2 * maxSplitTimeouts * s.timeout) }) // it is remembered for the pause at most
	}
	return contenders, err
}

// grant grants an acquisition that has won its vote.
func (s *Store) grant(a *acquisition, token uint64, start time.Time) error {
	if time.Since(start) >= a.ttl-drift(a.ttl) {
		return errTooLate
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return errReleased
	}
	a.token = token
	return nil
}

// undo releases what a failed attempt got, or may have got. It waits for members that certainly
// granted, so that they do not block the next contender. unsure says that other members may have
// granted as well, or that undo did not wait to the end.
func (s *Store) undo(ctx context.Context, a *acquisition, b *ballot) (unsure bool) {
	// A refusal is the only proof that is used: another error may have come after the grant.
	mayHold := allMembers(len(s.members)) &^ b.refused
	released := s.releaseAt(ctx, a, mayHold)
	for left := b.granted; left != 0; {
		select {
		case got := <-released: // or not: the lock expires anyway
			left.remove(got.member)
		case <-ctx.Done():
			return true
		}
	}
	return mayHold != b.granted
}
