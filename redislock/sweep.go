package redislock

import (
	"context"
	"slices"
)

// sweepLaterLocked makes sure that contexts are looked at while anybody waits.
func (s *sender) sweepLaterLocked() {
	if !s.sweeping {
		s.sweeping = true
		s.sweeper.Reset(sweepInterval)
	}
}

// sweep tells the callers whose context is done. Calls that were not sent yet are
// not sent at all.
func (s *sender) sweep() {
	s.mu.Lock()
	waiting := slices.Clone(s.queue)
	for _, batch := range s.underway {
		for _, c := range batch {
			if c.state == sent {
				waiting = append(waiting, c)
			}
		}
	}
	contexts, serials := make([]context.Context, len(waiting)), make([]uint64, len(waiting))
	for i, c := range waiting {
		contexts[i], serials[i] = c.ctx, c.serial
	}
	s.mu.Unlock()
	ended := make([]bool, len(waiting))
	for i, ctx := range contexts {
		ended[i] = ctx.Err() != nil // which may be anybody's code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range waiting {
		if ended[i] && c.serial == serials[i] && (c.state == queued || c.state == sent) {
			c.state = over
			c.signal <- left
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.state == over })
	s.sweeping = false
	if len(s.queue) > 0 || len(s.underway) > 0 {
		s.sweepLaterLocked()
	}
}
