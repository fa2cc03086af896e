package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

func (s *Store) renew(ctx context.Context, acquisitions []*acquisition) []error {
	if len(acquisitions) == 0 {
		return nil
	}
	n := len(s.members)
	r := &renewal{s: s, grants: make([]renewedGrant, len(acquisitions)), pending: allMembers(n), decided: make(chan struct{}, n)}
	for k, a := range acquisitions {
		r.grants[k] = renewedGrant{a: a, errs: make([]error, n)}
	}
	for i := range s.members {
		s.work.Go(func() { r.ask(ctx, i) })
	}
	select {
	case <-r.decided:
	case <-ctx.Done():
	}
	return r.outcome(ctx)
}

// renewal is one call to Renew, until the last member has answered it.
type renewal struct {
	s       *Store
	decided chan struct{} // receives when all grants are decided, or all members have answered

	mu      sync.Mutex
	grants  []renewedGrant
	pending set // members without an answer yet
}

// renewedGrant is what the members answered about one grant.
type renewedGrant struct {
	a       *acquisition
	renewed set
	notHeld set
	errs    []error // why members did not answer, by member
}

// ask has one member renew all grants.
func (r *renewal) ask(ctx context.Context, i int) {
	grants := make([]driver.Grant, len(r.grants))
	for k := range r.grants {
		grants[k] = r.grants[k].a.aliasGrant(i)
	}
	m := r.s.members[i]
	if err := r.s.identify(ctx, m); err != nil {
		r.count(i, slices.Repeat([]error{err}, len(grants)))
		return
	}
	errs := m.renew(ctx, grants)
	r.learn(m, errs)
	r.count(i, errs)
}

// learn asks the member once more about locks that it has renewed, if what it promises and their tokens
// are not known: its answer to an attempt was lost.
func (r *renewal) learn(m *member, errs []error) {
	var all sync.WaitGroup
	for k := range r.grants {
		if a := r.grants[k].a; errs[k] == nil && a.memberGrant(m.index).Token == 0 {
			all.Add(1)
			r.s.enqueueCall(a, m.index, func(int) {
				defer all.Done()
				errs[k] = r.s.acquireAgain(m, a)
			})
		}
	}
	all.Wait()
}

// count counts the answers of one member, also after the decision: a lock that the member
// lost is still repaired.
func (r *renewal) count(i int, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.remove(i)
	decided := true
	for k := range r.grants {
		g := &r.grants[k]
		switch err := g.a.checkTTL(i, errs[k]); {
		case err == nil:
			g.renewed.add(i)
		case errors.Is(err, driver.ErrNotHeld):
			g.notHeld.add(i)
		default:
			g.errs[i] = err
		}
		decided = decided && max(g.renewed.len(), g.notHeld.len()) >= r.s.majority
	}
	if decided || r.pending == 0 {
		r.decided <- struct{}{}
	}
	if r.pending == 0 {
		r.repairLocked()
	}
}

// errShort is the error of a member that renewed a lock for less than the others.
var errShort = fmt.Errorf("%w: it promises a shorter TTL than the majority did", driver.ErrUnreachable)

// checkTTL returns the answer of member i to a renewal. A member that promises less than the
// majority did, or whose promise is unknown, does not count.
func (a *acquisition) checkTTL(i int, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.members[i].ttl < a.minMemberTTL {
		return errShort
	}
	return err
}

// repairLocked acts on the answers of all members. A lock that a majority has is acquired again at
// members that lost it, or have it with another token. What is left of a lost lock is released.
func (r *renewal) repairLocked() {
	s := r.s
	for k := range r.grants {
		g := &r.grants[k]
		switch {
		case g.renewed.len() >= s.majority:
			incomplete := g.notHeld
			for i := range g.renewed.all() {
				if s.agreesOnTokens && g.a.hasOtherToken(i) {
					incomplete.add(i)
				}
			}
			for i := range incomplete.all() {
				s.repair(s.members[i], g.a)
			}
		case g.notHeld.len() >= s.majority && !g.a.hasEnded():
			s.releaseAt(context.Background(), g.a, allMembers(len(s.members)))
		}
	}
}

// outcome returns the result of Renew.
func (r *renewal) outcome(ctx context.Context) (errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for k := range r.grants {
		g := &r.grants[k]
		var err error
		switch {
		case g.renewed.len() >= r.s.majority:
			g.a.locked(func() { g.a.expires = now.Add(g.a.ttl) })
			continue
		case g.notHeld.len() >= r.s.majority:
			err = driver.ErrNotHeld
		case ctx.Err() != nil:
			err = interrupted(ctx)
		default:
			err = r.s.noMajority(g.errs)
		}
		if errs == nil {
			errs = make([]error, len(r.grants))
		}
		errs[k] = err
	}
	return errs
}
