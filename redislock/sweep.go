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
	type look struct {
		call   *call
		ctx    context.Context // a call that ends meanwhile is used again
		serial uint64
		ended  bool
	}
	var looks []look
	for _, c := range s.queue {
		looks = append(looks, look{call: c, ctx: c.ctx, serial: c.serial})
	}
	for _, batch := range s.underway {
		for _, c := range batch {
			if c.state == sent {
				looks = append(looks, look{call: c, ctx: c.ctx, serial: c.serial})
			}
		}
	}
	s.mu.Unlock()
	for i := range looks {
		looks[i].ended = looks[i].ctx.Err() != nil // which may be anybody's code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range looks {
		if c := l.call; l.ended && c.serial == l.serial && (c.state == queued || c.state == sent) {
			if c.state == queued {
				c.state = over
			} else {
				c.state, c.onItsWay = abandoned, true
			}
			c.signal <- left
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.state == over })
	s.sweeping = false
	if len(s.queue) > 0 || len(s.underway) > 0 {
		s.sweepLaterLocked()
	}
}
