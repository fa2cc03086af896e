package quorum

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. It goes to all members, also to those that were
// not known to hold the lock, and returns when a majority has answered: the lock
// was held if a majority held it, and not if a majority says so.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	c := s.find(&grant)
	if c == nil {
		return s.release(ctx, s.stranger(&grant))
	}
	c.mu.Lock()
	other := grant.Token != 0 && grant.Token != c.token
	c.mu.Unlock()
	if other {
		return driver.ErrNotHeld
	}
	return s.release(ctx, c)
}

// release gives up a claim on all members.
func (s *Store) release(ctx context.Context, c *claim) error {
	c.finish()
	r := s.newReturns()
	sp := s.newSpan(ctx)
	giveBack := func(i int) { r.report(i, s.giveBack(sp, c, i)) }
	for i := range s.members {
		s.sit(c, i, giveBack)
	}
	err := r.wait(ctx, 4*s.timeout) // some may have to finish an Acquire first
	if isAnswer(err) {
		s.forget(c)
	}
	return err
}

// giveBack releases what a claim has at one member, and again later if the member does
// not answer.
func (s *Store) giveBack(sp *span, c *claim, i int) error {
	defer sp.done()
	c.mu.Lock()
	asked := c.seats[i].asked
	c.mu.Unlock()
	if !asked {
		return driver.ErrNotHeld
	}
	limited, cancel := sp.context()
	defer cancel()
	m := s.members[i]
	err := m.giveBack(limited, c)
	if !isAnswer(err) {
		s.leftover(m, c)
	}
	return err
}

// giveBack releases what a claim has at the member. The alias alone decides, since no
// other claim has it.
func (m *member) giveBack(limited context.Context, c *claim) error {
	c.mu.Lock()
	grant := c.at(m.index)
	c.mu.Unlock()
	grant.Token = 0
	return m.release(limited, grant)
}
