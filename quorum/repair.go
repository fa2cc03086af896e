package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// repairs are locks that a member lost, and is to get again because a majority
// holds them. One goroutine at a time takes care of them, so that a member that has
// just come back is not flooded.
type repairs struct {
	mu    sync.Mutex
	queue []*claim
	busy  bool
}

// repair has a claim taken at a member that lost it, or never had it.
func (s *Store) repair(m *member, c *claim) {
	r := &m.repairs
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, c)
	if !r.busy {
		r.busy = true
		s.work.Go(func() { s.repairAll(m) })
	}
}

func (s *Store) repairAll(m *member) {
	for c := m.repairs.next(); c != nil; c = m.repairs.next() {
		if !c.trySit(m.index) {
			continue // a call is under way; the next renewal will tell
		}
		var err error
		c.serve(m.index, func(int) { err = s.takeAgain(m, c) })
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			m.repairs.drop() // it is gone again
		}
	}
}

func (r *repairs) next() (c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		r.queue, r.busy = nil, false
		return nil
	}
	c = r.queue[0]
	r.queue = r.queue[1:]
	return c
}

func (r *repairs) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = nil
}

// takeAgain acquires a lock at one member. A Release that comes meanwhile waits for
// it, and undoes it.
func (s *Store) takeAgain(m *member, c *claim) error {
	c.mu.Lock()
	over := c.over
	req := driver.Request{Name: c.name, Owner: c.alias, TTL: c.ttl, Holder: c.holder}
	if s.raises {
		req.Floor = c.token
	}
	c.mu.Unlock()
	if over {
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	grant, err := m.acquire(limited, &req)
	if err != nil {
		c.failed(m.index, err)
		return err
	}
	c.granted(m.index, &grant)
	return nil
}
