package quorum

import (
	"context"
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

// maxWorkItems limits the memory that a member costs while it is down.
const maxWorkItems = 10_000

// add appends an acquisition, and reports whether the caller must start the goroutine.
func (q *workQueue) add(a *acquisition, until time.Time) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= maxWorkItems {
		return false
	}
	q.items = append(q.items, workItem{a, until})
	start = !q.busy
	q.busy = true
	return start
}

// first returns the acquisition that has waited longest. If no acquisition waits, first returns
// nil, and the goroutine must end.
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

// remove removes the first acquisition, which is a unless a has expired meanwhile.
func (q *workQueue) remove(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 && q.items[0].a == a {
		q.items = q.items[1:]
	}
}

func (q *workQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = nil
}

const (
	// The pauses between two calls to a member that does not answer.
	minReleasePause = 20 * time.Millisecond
	maxReleasePause = 5 * time.Second
	// maxReleaseTime is how long a release is repeated. A longer TTL is left to expire.
	maxReleaseTime = 10 * time.Minute
	// flushLimit is how long Close repeats releases at a member that answers.
	flushLimit = time.Second
)

// releaseLater repeats a release that a member did not answer.
func (s *Store) releaseLater(m *member, a *acquisition) {
	var ttl time.Duration
	a.locked(func() { ttl = a.ttl })
	if m.releases.add(a, time.Now().Add(min(ttl, maxReleaseTime))) {
		s.work.Go(func() { s.repeatReleases(m) })
	}
}

// repeatReleases works until nothing is left, or until Close. The pauses grow while the member
// does not answer.
func (s *Store) repeatReleases(m *member) {
	pause := backoff.Backoff{Min: minReleasePause, Max: maxReleasePause}
	for pause.Wait(s.closing) == nil {
		for {
			a := m.releases.first()
			if a == nil {
				return
			}
			if !m.releaseAgain(context.Background(), a) {
				break
			}
			pause.Reset()
			m.releases.remove(a)
		}
	}
}

// releaseAgain releases an acquisition, and reports whether the member answered.
func (m *member) releaseAgain(ctx context.Context, a *acquisition) bool {
	limited, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return isAnswer(m.release(limited, a))
}

// flushReleases repeats all releases for the last time. Its error is that of Close.
func (s *Store) flushReleases() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() {
			for a := m.releases.first(); a != nil && ctx.Err() == nil && m.releaseAgain(ctx, a); a = m.releases.first() {
				m.releases.remove(a)
			}
		})
	}
	all.Wait()
	left := make(map[*acquisition]int) // at how many members
	for _, m := range s.members {
		for _, item := range m.releases.items { // the work has ended
			left[item.a]++
		}
	}
	blocking := 0
	for _, members := range left {
		if len(s.members)-members < s.majority {
			blocking++
		}
	}
	if blocking == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d locks could not be released by a majority and are left to expire", driver.ErrUnreachable, blocking)
}

// repair acquires a lock that a majority holds at a member that lost it, or never had it.
func (s *Store) repair(m *member, a *acquisition) {
	if m.repairs.add(a, time.Now().Add(driver.MaxTTL)) {
		s.work.Go(func() { s.repairAll(m) })
	}
}

func (s *Store) repairAll(m *member) {
	for a := m.repairs.first(); a != nil; a = m.repairs.first() {
		repaired := make(chan error, 1)
		s.enqueueCall(a, m.index, func(int) { repaired <- s.acquireAgain(m, a) })
		if !isAnswer(<-repaired) {
			m.repairs.clear() // the member is down again
		}
		m.repairs.remove(a)
	}
}

// acquireAgain acquires a lock at one member. A Release that comes meanwhile waits for it,
// and undoes it.
func (s *Store) acquireAgain(m *member, a *acquisition) error {
	a.mu.Lock()
	ended := a.ended
	req := driver.Request{Name: a.name, Owner: a.alias, TTL: a.ttl, Holder: a.holder}
	if s.raises {
		req.Floor = a.token
	}
	a.mu.Unlock()
	if ended {
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	grant, err := m.acquire(limited, &req)
	a.note(m.index, &grant, err)
	return err
}
