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
	return s.renew(ctx, grants)
}

func (s *Store) renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	r := &renewal{
		s:       s,
		grants:  make([]renewedGrant, len(grants)),
		open:    len(grants),
		asked:   allMembers(len(s.members)),
		errs:    make([]error, len(s.members)),
		decided: make(chan struct{}),
	}
	for k := range grants {
		a := s.find(&grants[k])
		if a == nil { // the members do not hold it either
			a = s.newAcquisition(&driver.Request{Name: grants[k].Name, TTL: grants[k].TTL})
			a.ended = true
		}
		r.grants[k].a = a
	}
	deadline := s.newDeadline(ctx)
	for i := range s.members {
		s.work.Go(func() { r.ask(deadline, i) })
	}
	// Members keep to their own limits. This one is for a member that does not.
	limit := time.NewTimer(2 * s.timeout)
	defer limit.Stop()
	select {
	case <-r.decided:
		return r.outcome(nil)
	case <-limit.C:
		return r.outcome(nil)
	case <-ctx.Done():
		return r.outcome(context.Cause(ctx))
	}
}

// renewal is one call to Renew, until the last member has answered it.
type renewal struct {
	s *Store

	mu      sync.Mutex
	grants  []renewedGrant
	open    int           // grants that are not decided
	asked   set           // members without an answer yet
	errs    []error       // why a member did not answer, by member
	decided chan struct{} // closed when all grants are decided, or all members have answered
	close   sync.Once     // closes decided
}

// renewedGrant is what the members answered about one grant.
type renewedGrant struct {
	a             *acquisition
	renewed, lost set
	repaired      set // members of lost that are being repaired
	decided       bool
}

// ask has one member renew all grants.
func (r *renewal) ask(deadline *sharedDeadline, i int) {
	defer deadline.done()
	grants := make([]driver.Grant, len(r.grants))
	for k := range r.grants {
		grants[k] = r.grants[k].a.memberGrant(i)
	}
	limited, cancel := deadline.context()
	defer cancel()
	r.count(i, grants, r.s.members[i].renew(limited, grants))
}

// count counts the answers of one member, also after the decision: a lock that the member
// lost is still repaired. A member that promises less than the majority did does not count.
func (r *renewal) count(i int, grants []driver.Grant, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked.remove(i)
	for k := range r.grants {
		g := &r.grants[k]
		switch {
		case errs == nil || errs[k] == nil:
			var needed time.Duration
			g.a.locked(func() { needed = g.a.needed })
			if grants[k].TTL >= needed {
				g.renewed.add(i)
			}
		case errors.Is(errs[k], driver.ErrNotHeld):
			g.lost.add(i)
		default:
			r.errs[i] = errs[k]
		}
		r.decideLocked(g)
	}
	if r.open == 0 || r.asked == 0 {
		r.close.Do(func() { close(r.decided) })
	}
}

// decideLocked acts on the answers so far.
func (r *renewal) decideLocked(g *renewedGrant) {
	s := r.s
	lost := g.lost.len() >= s.majority
	if !g.decided && (lost || g.renewed.len() >= s.majority) {
		g.decided = true
		r.open--
	}
	ended := false
	g.a.locked(func() { ended = g.a.ended })
	switch {
	case g.renewed.len() >= s.majority:
		for i := range (g.lost &^ g.repaired).all() {
			g.repaired.add(i)
			s.repair(s.members[i], g.a)
		}
	case lost && !ended:
		s.giveBackAll(context.Background(), g.a) // a few members may still hold it
	}
}

// outcome returns the result of Renew. interrupted is the cause if the caller's context ended.
func (r *renewal) outcome(interrupted error) (errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	majority := r.s.majority
	now := time.Now()
	var unknown error
	for k := range r.grants {
		g := &r.grants[k]
		err := interrupted
		switch {
		case g.renewed.len() >= majority:
			g.a.locked(func() { g.a.expires = now.Add(g.a.ttl) })
			continue
		case g.lost.len() >= majority:
			err = driver.ErrNotHeld
		case interrupted == nil:
			if unknown == nil {
				unknown = fmt.Errorf("not renewed by a majority: %w", r.s.unreachable((g.renewed|g.lost).len(), r.errs))
			}
			err = unknown
		}
		if errs == nil {
			errs = make([]error, len(r.grants))
		}
		errs[k] = err
	}
	return errs
}
