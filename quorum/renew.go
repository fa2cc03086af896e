package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Renew implements driver.Store. Each member gets one call for all grants. A grant
// is renewed if a majority of members renewed it, and not held if a majority says
// so; otherwise the outcome is unknown.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.begin(ctx); err != nil {
		return each(len(grants), err)
	}
	defer s.end()
	return s.renew(ctx, grants)
}

// each returns err n times.
func each(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (s *Store) renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	r := &renewal{
		s:       s,
		claims:  make([]*claim, len(grants)),
		tallies: make([]tally, len(grants)),
		open:    len(grants),
		asked:   everybody(len(s.members)),
		errs:    make([]error, len(s.members)),
		decided: make(chan struct{}),
	}
	for k := range grants {
		if r.claims[k] = s.find(&grants[k]); r.claims[k] == nil {
			r.claims[k] = s.stranger(&grants[k])
			r.tallies[k].stranger = true
		}
	}
	sp := s.newSpan(ctx)
	for i := range s.members {
		s.work.Go(func() { r.ask(sp, i) })
	}
	// Members keep to the limit themselves. This is for one that does not.
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
	s      *Store
	claims []*claim

	mu      sync.Mutex
	tallies []tally
	open    int           // tallies that are not decided
	asked   set           // and not answered yet
	errs    []error       // why a member did not say anything, by member
	decided chan struct{} // closed when all tallies are, or all members have answered
	closed  bool
}

// tally is what the members said of one grant.
type tally struct {
	renewed, gone set
	repaired      set // those of gone that are being taken care of
	decided       bool
	stranger      bool // not granted here: there is nothing to repair or to clean up
}

// ask has one member renew everything.
func (r *renewal) ask(sp *span, i int) {
	defer sp.done()
	grants := make([]driver.Grant, len(r.claims))
	for k, c := range r.claims {
		c.mu.Lock()
		grants[k] = c.at(i)
		c.mu.Unlock()
	}
	limited, cancel := sp.context()
	defer cancel()
	r.count(i, grants, r.s.members[i].renew(limited, grants))
}

// count counts the answers of one member, also when the others have decided without
// it: a lock that it lost is its own again all the same.
func (r *renewal) count(i int, grants []driver.Grant, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked.remove(i)
	for k := range r.tallies {
		t := &r.tallies[k]
		switch {
		case errs == nil || errs[k] == nil:
			if grants[k].TTL >= r.claims[k].promised() {
				t.renewed.add(i)
			}
		case errors.Is(errs[k], driver.ErrNotHeld):
			t.gone.add(i)
		default:
			r.errs[i] = errs[k]
		}
		r.decide(k)
	}
	if (r.open == 0 || r.asked == 0) && !r.closed {
		r.closed = true
		close(r.decided)
	}
}

// decide does what the answers so far ask for. r.mu is held.
func (r *renewal) decide(k int) {
	s, t, c := r.s, &r.tallies[k], r.claims[k]
	lost := t.gone.len() >= s.rules.majority
	if !t.decided && (lost || t.renewed.len() >= s.rules.majority) {
		t.decided = true
		r.open--
	}
	switch {
	case t.stranger:
	case s.rules.mayRepair(t.renewed.len()):
		for i, m := range s.members {
			if t.gone.has(i) && !t.repaired.has(i) {
				t.repaired.add(i)
				s.repair(m, c)
			}
		}
	case lost && !c.isOver():
		// A few members may have it yet, and nobody renews it any more.
		s.cleanUp(c)
	}
}

// outcome is what the caller is told. cut is why it does not wait any longer.
func (r *renewal) outcome(cut error) (errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	majority := r.s.rules.majority
	now := time.Now()
	var unknown error
	for k := range r.tallies {
		t, c := &r.tallies[k], r.claims[k]
		err := cut
		switch {
		case t.renewed.len() >= majority:
			c.prolong(now)
			continue
		case t.gone.len() >= majority:
			err = driver.ErrNotHeld
		case cut == nil:
			if unknown == nil {
				unknown = fmt.Errorf("not renewed by a majority: %w", r.s.unreachable((t.renewed|t.gone).len(), r.errs))
			}
			err = unknown
		}
		if errs == nil {
			errs = make([]error, len(r.tallies))
		}
		errs[k] = err
	}
	return errs
}

// promised is the TTL that a member must renew for to count.
func (c *claim) promised() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.needed
}

// prolong notes that a claim was renewed.
func (c *claim) prolong(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires = now.Add(c.ttl)
}

// cleanUp gives up what is left of a claim that is lost, in the background.
func (s *Store) cleanUp(c *claim) {
	c.finish()
	sp := s.newSpan(context.Background())
	for i := range s.members {
		s.sit(c, i, func(i int) { _ = s.giveBack(sp, c, i) }) // it expires anyway
	}
}
