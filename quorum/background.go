package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// workQueue holds acquisitions for which a member must be called again. One goroutine works on
// it, so that a member that is down or has just come back is not flooded.
type workQueue struct {
	mu    sync.Mutex
	items []workItem // in the order of their arrival
	busy  bool       // a goroutine works on it
}

type workItem struct {
	a     *acquisition
	until time.Time // when the call is not needed any more
}

const (
	// maxWorkItems limits the memory that a member costs while it is down. What does not fit is left
	// to expire, and Close does not count it.
	maxWorkItems = 10_000
	// maxWorkTime is how long a call is repeated, at most for the TTL. After that a lock that was not
	// released is left to expire.
	maxWorkTime = 10 * time.Minute
)

// add appends an acquisition, and reports whether the caller must start the goroutine.
func (q *workQueue) add(a *acquisition) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= maxWorkItems {
		return false
	}
	q.items = append(q.items, workItem{a, time.Now().Add(min(a.ttl, maxWorkTime))})
	start = !q.busy
	q.busy = true
	return start
}

// first removes the acquisitions that need no call any more, and returns the one that has waited
// longest. If there is none, first returns nil, and the goroutine must end.
func (q *workQueue) first() *acquisition {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.items) > 0 && now.After(q.items[0].until) {
		q.items = q.items[1:]
	}
	if len(q.items) == 0 {
		q.items, q.busy = nil, false
		return nil
	}
	return q.items[0].a
}

// remove removes a if it is still the first acquisition, or all acquisitions.
func (q *workQueue) remove(a *acquisition, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if all {
		q.items = nil
	} else if len(q.items) > 0 && q.items[0].a == a {
		q.items = q.items[1:]
	}
}

const (
	// The pauses between two calls to a member that does not answer.
	minReleasePause = 20 * time.Millisecond
	maxReleasePause = 5 * time.Second
	// flushLimit is how long Close repeats releases at a member that answers.
	flushLimit = time.Second
)

// releaseLater repeats a release that a member did not answer.
func (s *Store) releaseLater(m *member, a *acquisition) {
	if m.releases.add(a) {
		s.work.Go(func() { s.repeatReleases(m) })
	}
}

// repeatReleases works until nothing is left, or until Close. The pauses grow while the member
// does not answer.
func (s *Store) repeatReleases(m *member) {
	pause := backoff.Backoff{Min: minReleasePause, Max: maxReleasePause}
	for pause.Wait(s.closing) == nil {
		for s.closing.Err() == nil { // otherwise flushReleases goes on
			a := m.releases.first()
			if a == nil {
				return
			}
			if !isAnswer(m.release(context.Background(), a)) {
				break
			}
			pause.Reset()
			m.releases.remove(a, false)
		}
	}
}

// flushReleases repeats all releases for the last time. Its error is that of Close.
func (s *Store) flushReleases() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() {
			for a := m.releases.first(); a != nil && ctx.Err() == nil && isAnswer(m.release(ctx, a)); a = m.releases.first() {
				m.releases.remove(a, false)
			}
		})
	}
	all.Wait()
	left := make(map[*acquisition]set) // the members that may still hold it
	for i, m := range s.members {
		for _, item := range m.releases.items { // the work has ended
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

// repair acquires a lock that a majority holds at a member that lost it, never had it, or has it
// with another token: List, Find and Break need a majority with the same one.
func (s *Store) repair(m *member, a *acquisition) {
	if m.repairs.add(a) {
		s.work.Go(func() { s.repairAll(m) })
	}
}

func (s *Store) repairAll(m *member) {
	for a := m.repairs.first(); a != nil && s.closing.Err() == nil; a = m.repairs.first() {
		repaired := make(chan error, 1)
		s.enqueueCall(a, m.index, func(int) { repaired <- s.acquireAgain(m, a) })
		memberDown := errors.Is(<-repaired, driver.ErrUnreachable)
		m.repairs.remove(a, memberDown)
	}
}

// acquireAgain acquires a lock at one member. A Release that comes meanwhile waits for it,
// and undoes it.
func (s *Store) acquireAgain(m *member, a *acquisition) error {
	a.mu.Lock()
	ended, token := a.ended || time.Now().After(a.expires), a.token
	req := driver.Request{Name: a.name, Owner: a.alias, TTL: a.ttl, Holder: a.holder}
	if s.agreesOnTokens {
		req.Floor = token
	}
	if !ended { // unknown until the member answers
		a.members[m.index].token, a.members[m.index].ttl = 0, 0
	}
	a.mu.Unlock()
	if ended {
		return nil
	}
	if err := s.identify(context.Background(), m); err != nil {
		return err
	}
	grant, err := m.acquire(context.Background(), &req)
	a.note(m.index, &grant, err)
	if err == nil && s.agreesOnTokens && grant.Token != token { // a member may draw larger ones
		_, err = m.raiseToken(context.Background(), a, token)
	}
	return err
}
