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
	locks   []renewedLock
	answers chan renewalAnswer // has room for all
	pending int                // members without an answer yet
}

// renewedLock is what the members answered about one lock.
type renewedLock struct {
	a       *acquisition
	renewed set
	notHeld set
	errs    []error // why members did not answer, by member
}

type renewalAnswer struct {
	member int
	errs   []error // by lock
}

func (s *Store) renew(ctx context.Context, acquisitions []*acquisition) []error {
	if len(acquisitions) == 0 {
		return nil
	}
	r := &renewal{s: s, answers: make(chan renewalAnswer, len(s.members)), pending: len(s.members)}
	var grants []driver.Grant
	for _, a := range acquisitions {
		grants = append(grants, a.aliasGrant())
		r.locks = append(r.locks, renewedLock{a: a, errs: make([]error, len(s.members))})
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
	r.pending--
	for k, err := range got.errs {
		switch l := &r.locks[k]; {
		case err == nil:
			l.renewed.add(got.member)
		case errors.Is(err, driver.ErrNotHeld):
			l.notHeld.add(got.member)
		default:
			l.errs[got.member] = err
		}
	}
}

func (r *renewal) decided() bool {
	return !slices.ContainsFunc(r.locks, func(l renewedLock) bool { return max(l.renewed.len(), l.notHeld.len()) < r.s.majority })
}

// outcome returns the result of Renew.
func (r *renewal) outcome(ctx context.Context) (errs []error) {
	expires := time.Now()
	for k := range r.locks {
		l := &r.locks[k]
		var err error
		switch {
		case l.renewed.len() >= r.s.majority:
			l.a.locked(func() { l.a.expires = expires.Add(l.a.ttl) })
			continue
		case l.notHeld.len() >= r.s.majority:
			err = driver.ErrNotHeld
		case ctx.Err() != nil:
			err = interrupted(ctx)
		default:
			err = r.s.noMajority(l.errs)
		}
		if errs == nil {
			errs = make([]error, len(r.locks))
		}
		errs[k] = err
	}
	return errs
}

// repair acts on the answers of all members. A lock that a majority has is acquired again at
// members that lost it, or have it with another token. What is left of a lost lock is released.
func (r *renewal) repair() {
	s := r.s
	incomplete := make([][]*acquisition, len(s.members))
	for _, l := range r.locks {
		switch token := l.a.grant().Token; {
		case l.renewed.len() >= s.majority:
			for i := range (l.renewed | l.notHeld).all() {
				if l.notHeld.has(i) || l.a.tokenAt(i) != token {
					incomplete[i] = append(incomplete[i], l.a)
				}
			}
		case l.notHeld.len() >= s.majority && !l.a.hasEnded():
			s.releaseAt(context.Background(), l.a, allMembers(len(s.members)))
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
