package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
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

// releaseAt ends an acquisition, and releases it at members in the background. If a member does not
// answer, the release is repeated later.
func (s *Store) releaseAt(ctx context.Context, a *acquisition, members set) results {
	a.locked(func() { a.ended = true })
	released := make(results, len(s.members))
	for i := range members.all() {
		s.enqueueCall(a, i, func(i int) {
			m, asked := s.members[i], false
			a.locked(func() { asked = a.members[i].asked })
			if !asked {
				released <- result{i, driver.ErrNotHeld}
				return
			}
			err := m.release(context.WithoutCancel(ctx), a)
			if !isAnswer(err) {
				m.releaseLater(a)
			}
			released <- result{i, err}
		})
	}
	return released
}

// missedRelease is a release that a member did not answer. One goroutine of each member repeats them, so that
// a member that is down or has just come back is not flooded.
type missedRelease struct {
	a     *acquisition
	until time.Time // when it is not needed any more
}

const (
	// maxReleases limits the memory that a member costs while it is down. What does not fit is left
	// to expire, and Close does not count it.
	maxReleases = 10_000
	// maxReleaseTime is how long a release is repeated, at most for the TTL. After that the lock is
	// left to expire.
	maxReleaseTime = 10 * time.Minute
	// The pauses between two calls to a member that does not answer.
	minReleasePause = 20 * time.Millisecond
	maxReleasePause = 5 * time.Second
	// flushLimit is how long Close repeats releases at a member that answers.
	flushLimit = time.Second
)

func (m *member) releaseLater(a *acquisition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.missed) >= maxReleases {
		return
	}
	m.missed = append(m.missed, missedRelease{a, time.Now().Add(min(a.ttl, maxReleaseTime))})
	if len(m.missed) == 1 {
		m.s.work.Go(m.repeatReleases)
	}
}

// repeatReleases works until nothing is left, or until Close. The pauses grow while the member
// does not answer.
func (m *member) repeatReleases() {
	pause := backoff.Backoff{Min: minReleasePause, Max: maxReleasePause}
	for pause.Wait(m.s.closing) == nil {
		if m.repeat(context.Background(), m.s.closing, pause.Reset) {
			return
		}
	}
}

// repeat repeats the releases until the member does not answer or end ends, which does not end a call. It
// reports whether none is left.
func (m *member) repeat(ctx, end context.Context, answered func()) (done bool) {
	for {
		a := m.firstMissed()
		if a == nil {
			return true
		}
		if end.Err() != nil || !isAnswer(m.release(ctx, a)) {
			return false
		}
		answered()
		m.mu.Lock()
		m.missed = m.missed[1:]
		done = len(m.missed) == 0 // the next release that the member misses starts a goroutine
		m.mu.Unlock()
		if done {
			return true
		}
	}
}

// firstMissed forgets what need not be released any more, and returns what was released first, or nil.
func (m *member) firstMissed() *acquisition {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for len(m.missed) > 0 && now.After(m.missed[0].until) {
		m.missed = m.missed[1:]
	}
	if len(m.missed) == 0 {
		return nil
	}
	return m.missed[0].a
}

// flushReleases repeats all releases for the last time. Its error is that of Close.
func (s *Store) flushReleases() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() { m.repeat(ctx, ctx, func() {}) })
	}
	all.Wait()
	left := make(map[*acquisition]set) // the members that may still hold it
	for i, m := range s.members {
		for _, item := range m.missed { // the work has ended
			left[item.a] |= 1 << i
		}
	}
	blocking := 0
	for _, mayHold := range left {
		if len(s.members)-mayHold.len() < s.majority {
			blocking++
		}
	}
	if blocking == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d locks could not be released by a majority and are left to expire", driver.ErrUnreachable, blocking)
}
