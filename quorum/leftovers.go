package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// leftovers are claims that are over and that a member may still hold, because it did not
// answer when it was told to release them. One goroutine at a time tells it again: as long
// as it does not answer, of one claim at a time with growing pauses, so that a member that
// is down costs next to nothing, whatever the number of its claims.
type leftovers struct {
	mu    sync.Mutex
	queue []leftover // in the order in which they came
	busy  bool
}

type leftover struct {
	claim *claim
	until time.Time // when it has expired, or is left to expire
}

const (
	// The pauses between two calls to a member that does not answer.
	minLeftPause = 20 * time.Millisecond
	maxLeftPause = 5 * time.Second
	// maxLeftTime is how long a member is told again. A longer TTL is left to expire.
	maxLeftTime = 10 * time.Minute
	// maxLeftovers bounds the memory that a member can cost that is down.
	maxLeftovers = 10_000
)

// leftover has m told again to release c.
func (s *Store) leftover(m *member, c *claim) {
	c.mu.Lock()
	ttl := c.ttl
	c.mu.Unlock()
	l := &m.leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxLeftovers {
		return
	}
	l.queue = append(l.queue, leftover{claim: c, until: time.Now().Add(min(ttl, maxLeftTime))})
	if !l.busy {
		l.busy = true
		s.work.Go(func() { s.clear(m) })
	}
}

// clear tells m again until nothing is left, or until the Store is closed.
func (s *Store) clear(m *member) {
	pause := backoff.Backoff{Min: minLeftPause, Max: maxLeftPause}
	timer := time.NewTimer(pause.Next())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.closing:
			return
		}
		for {
			c := m.leftovers.first()
			if c == nil {
				return
			}
			if !m.tell(context.Background(), c) {
				break
			}
			pause.Reset()
			m.leftovers.done(c)
		}
		timer.Reset(pause.Next())
	}
}

// tell releases c and reports whether the member answered.
func (m *member) tell(ctx context.Context, c *claim) bool {
	limited, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return isAnswer(m.giveBack(limited, c))
}

// first returns the claim that has waited longest. If there is none, nil ends the
// goroutine.
func (l *leftovers) first() *claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.queue) > 0 && now.After(l.queue[0].until) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue, l.busy = nil, false
		return nil
	}
	return l.queue[0].claim
}

// done removes the first claim, which is c unless it has expired meanwhile.
func (l *leftovers) done(c *claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 && l.queue[0].claim == c {
		l.queue = l.queue[1:]
	}
}

// closeLimit bounds how long Close tells a member that answers.
const closeLimit = time.Second

// lastCall tells all members for the last time. The error says how many claims are left at
// so many members that others have to wait until they expire.
func (s *Store) lastCall() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() {
			for c := m.leftovers.first(); c != nil && ctx.Err() == nil && m.tell(ctx, c); c = m.leftovers.first() {
				m.leftovers.done(c)
			}
		})
	}
	all.Wait()
	at := make(map[*claim]set)
	for i, m := range s.members {
		for _, left := range m.leftovers.queue { // nobody changes it any more
			members := at[left.claim]
			members.add(i)
			at[left.claim] = members
		}
	}
	blocking := 0
	for _, members := range at {
		if len(s.members)-members.len() < s.rules.majority {
			blocking++
		}
	}
	if blocking == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d locks could not be released by a majority and are left to expire", driver.ErrUnreachable, blocking)
}
