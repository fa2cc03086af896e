package quorum

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. It calls all members that got an attempt, also those that are
// not known to hold the lock, and returns what a majority answers.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.work.Done()
	s.mu.Lock() // no other vote of the owner begins meanwhile
	a := s.findLocked(&grant)
	held := a != nil && (grant.Token == 0 || grant.Token == a.grant().Token)
	if held {
		a.released = true
	}
	s.mu.Unlock()
	if !held {
		return driver.ErrNotHeld
	}
	return s.release(ctx, a)
}

func (s *Store) release(ctx context.Context, a *acquisition) error {
	err := s.decide(ctx, s.releaseAt(ctx, a, allMembers(len(s.members))))
	if isAnswer(err) {
		s.forget(a)
	}
	return err
}

// releaseAt ends an acquisition, and releases it at members in the background.
func (s *Store) releaseAt(ctx context.Context, a *acquisition, members set) results {
	a.locked(func() { a.ended = true })
	released := make(results, len(s.members))
	for i := range members.all() {
		s.enqueueCall(a, i, func(i int) { released <- result{i, s.releaseAtMember(ctx, a, i)} })
	}
	return released
}

// releaseAtMember releases an acquisition at one member. If the member does not answer, the
// release is repeated later.
func (s *Store) releaseAtMember(ctx context.Context, a *acquisition, i int) error {
	asked := false
	a.locked(func() { asked = a.members[i].asked })
	if !asked {
		return driver.ErrNotHeld
	}
	m := s.members[i]
	err := m.release(context.WithoutCancel(ctx), a)
	if !isAnswer(err) {
		s.releaseLater(m, a)
	}
	return err
}
