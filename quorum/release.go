package quorum

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. It calls all members, also those that are not known to
// hold the lock, and returns what a majority answers.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.work.Done()
	a := s.find(&grant)
	held := a != nil
	if held {
		a.locked(func() { held = grant.Token == 0 || grant.Token == a.token })
	}
	if !held {
		return driver.ErrNotHeld
	}
	return s.release(ctx, a)
}

// release releases an acquisition at all members.
func (s *Store) release(ctx context.Context, a *acquisition) error {
	err := s.await(ctx, s.giveBackAll(ctx, a), 4*s.timeout) // a member may have to finish an Acquire first
	if isAnswer(err) {
		s.forget(a)
	}
	return err
}

// giveBackAll ends an acquisition, and releases it at all members in the background.
func (s *Store) giveBackAll(ctx context.Context, a *acquisition) tally {
	a.locked(func() { a.ended = true })
	results := make(tally, len(s.members))
	deadline := s.newDeadline(ctx)
	giveBack := func(i int) { results <- result{i, s.giveBack(deadline, a, i)} }
	for i := range s.members {
		s.enqueueCall(a, i, giveBack)
	}
	return results
}

// giveBack releases an acquisition at one member. If the member does not answer, the
// release is repeated later.
func (s *Store) giveBack(deadline *sharedDeadline, a *acquisition, i int) error {
	defer deadline.done()
	asked := false
	a.locked(func() { asked = a.at[i].asked })
	if !asked {
		return driver.ErrNotHeld
	}
	limited, cancel := deadline.context()
	defer cancel()
	m := s.members[i]
	err := m.release(limited, a)
	if !isAnswer(err) {
		s.releaseLater(m, a)
	}
	return err
}
