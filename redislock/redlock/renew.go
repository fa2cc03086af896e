package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store. Each member gets one call for all grants. A grant is renewed
// or not held if a majority says so; otherwise the outcome is unknown.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.begin(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	defer s.work.Done()
	acquisitions := make([]*acquisition, len(grants))
	s.mu.Lock()
	for k := range grants {
		if acquisitions[k] = s.findLocked(&grants[k]); acquisitions[k] == nil { // the members do not hold it either
			acquisitions[k] = s.newAcquisition(&driver.Request{Name: grants[k].Name, TTL: grants[k].TTL})
			acquisitions[k].ended = true
		}
	}
	s.mu.Unlock()
	return s.renew(ctx, acquisitions)
}

// renewal is one call to Renew, until the last member has answered it.
type renewal struct {
	s       *Store
	locks   []*acquisition
	answers chan renewalAnswer // has room for all
	errs    [][]error          // by member, and by lock; nil before the answer
	pending int                // members without an answer yet
}

type renewalAnswer struct {
	member int
	errs   []error // by lock
}

func (s *Store) renew(ctx context.Context, locks []*acquisition) []error {
	if len(locks) == 0 {
		return nil
	}
	n := len(s.members)
	r := &renewal{s: s, locks: locks, answers: make(chan renewalAnswer, n), errs: make([][]error, n), pending: n}
	grants := make([]driver.Grant, len(locks))
	for k, a := range locks {
		grants[k] = a.aliasGrant()
	}
	for i, m := range s.members {
		s.work.Go(func() { r.answers <- renewalAnswer{i, m.renew(ctx, grants)} })
	}
	for r.pending > 0 && !r.decided() && ctx.Err() == nil {
		select {
		case got := <-r.answers:
			r.count(got)
		case <-ctx.Done():
		}
	}
	errs := r.outcome(ctx)
	s.work.Go(func() { // also after the decision: a lock that a member lost is still repaired
		for r.pending > 0 {
			r.count(<-r.answers)
		}
		r.repair()
	})
	return errs
}

func (r *renewal) count(got renewalAnswer) {
	r.errs[got.member] = got.errs
	r.pending--
}

// tally returns which members have renewed lock k, and which do not hold it.
func (r *renewal) tally(k int) (renewed, notHeld set) {
	for i, answered := range r.errs {
		switch {
		case answered == nil:
		case answered[k] == nil:
			renewed.add(i)
		case errors.Is(answered[k], driver.ErrNotHeld):
			notHeld.add(i)
		}
	}
	return renewed, notHeld
}

func (r *renewal) decided() bool {
	for k := range r.locks {
		if renewed, notHeld := r.tally(k); max(renewed.len(), notHeld.len()) < r.s.majority {
			return false
		}
	}
	return true
}

// outcome returns the result of Renew.
func (r *renewal) outcome(ctx context.Context) []error {
	errs := make([]error, len(r.locks))
	now := time.Now()
	for k, a := range r.locks {
		switch renewed, notHeld := r.tally(k); {
		case renewed.len() >= r.s.majority:
			a.locked(func() { a.expires = now.Add(a.ttl) })
		case notHeld.len() >= r.s.majority:
			errs[k] = driver.ErrNotHeld
		case ctx.Err() != nil:
			errs[k] = interrupted(ctx)
		default:
			why := make([]error, len(r.errs))
			for i, answered := range r.errs { // by all: there is no majority
				why[i] = answered[k]
			}
			errs[k] = r.s.noMajority(why)
		}
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// repair acts on the answers of all members. A lock that a majority has is acquired again at
// members that lost it, or have it with another token. What is left of a lost lock is released.
func (r *renewal) repair() {
	s := r.s
	incomplete := make([][]*acquisition, len(s.members))
	for k, a := range r.locks {
		token, ended := a.state()
		switch renewed, notHeld := r.tally(k); {
		case renewed.len() >= s.majority:
			for i := range (renewed | notHeld).all() {
				if notHeld.has(i) || a.tokenAt(i) != token {
					incomplete[i] = append(incomplete[i], a)
				}
			}
		case notHeld.len() >= s.majority && !ended:
			s.releaseAt(context.Background(), a, allMembers(len(s.members)))
		}
	}
	for i, m := range s.members {
		m.repair(incomplete[i])
	}
}

// repair acquires locks that a majority holds at a member that lost them, never had them, or has them
// with other tokens: List, Find and Break need a majority with the same one. If it is still at work for
// the last renewal, the next one tries again: a slow member is not flooded.
func (m *member) repair(locks []*acquisition) {
	if len(locks) == 0 || !m.repairing.CompareAndSwap(false, true) {
		return
	}
	m.s.work.Go(func() {
		defer m.repairing.Store(false)
		for _, a := range locks {
			repaired := make(chan error, 1)
			m.s.enqueueCall(a, m.index, func(int) { repaired <- m.acquireAgain(a) })
			if errors.Is(<-repaired, driver.ErrUnreachable) || m.s.closing.Err() != nil {
				return
			}
		}
	})
}

// acquireAgain acquires a lock at the member. A Release that comes meanwhile waits for it,
// and undoes it.
func (m *member) acquireAgain(a *acquisition) error {
	a.mu.Lock()
	ended, token := a.ended || time.Now().After(a.expires), a.token
	a.members[m.index].token = 0 // unknown until the member answers
	a.mu.Unlock()
	if ended {
		return nil
	}
	drawn, err := m.acquire(context.Background(), a, token)
	if err == nil && drawn != token { // a member may draw larger ones
		_, err = m.raiseToken(context.Background(), a, token)
	}
	return err
}
