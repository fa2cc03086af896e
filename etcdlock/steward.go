package etcdlock

import (
	"context"
	"time"
)

// The steward does what nobody calls the store for: it ends locks and places
// whose time is over while their lease goes on, renews the leases of those who
// wait, and closes watches that nobody needs any more.

// lookAgain is when to look at a hold that somebody is busy with.
const lookAgain = 50 * time.Millisecond

// expireAt sets when a hold ends unless it comes again, and makes the steward look
// then. s.mu is held.
func (s *Store) expireAt(h *hold, at time.Time) {
	h.expires = at
	s.lookAt(at)
}

// lookAt makes the steward look no later than that. s.mu is held.
func (s *Store) lookAt(at time.Time) {
	if s.closed {
		return
	}
	if !s.tending {
		s.tending = true
		s.tendAt = at
		s.work.Go(s.tend)
		return
	}
	if at.Before(s.tendAt) {
		s.tendAt = at
		select {
		case s.attention <- struct{}{}:
		default:
		}
	}
}

// keep makes the steward renew the lease of a hold that waits. s.mu is held.
func (s *Store) keep(h *hold) {
	if h.lease != nil && s.waiting[h.identity] != nil {
		s.lookAt(h.lease.refreshed.Add(h.lease.ttl / 3))
	}
}

// longest is how long the steward sleeps when there is nothing to do.
const longest = time.Hour

func (s *Store) tend() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		timer.Reset(time.Until(s.tendAt))
		s.mu.Unlock()
		select {
		case <-s.ctx.Done():
			return
		case <-s.attention:
			continue
		case <-timer.C:
		}
		chores := s.inspect(time.Now())
		s.remove(chores.keys)
		for _, l := range chores.leases {
			s.prolong(l)
		}
	}
}

// chores are what is to be done now.
type chores struct {
	keys   []doomed
	leases []*lease
}

// doomed is a key that is to be deleted, of a hold that is over.
type doomed struct {
	hold *hold
	key  string
}

// inspect finds what is to be done, and sets when to look next.
func (s *Store) inspect(now time.Time) (c chores) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tendAt = now.Add(longest)
	next := func(at time.Time) {
		if at.Before(s.tendAt) {
			s.tendAt = at
		}
	}
	kept := make(map[*lease]bool)
	for id, h := range s.holds {
		switch {
		case !h.held && s.waiting[id] != nil: // it lives as long as it is watched
			if h.lease != nil {
				kept[h.lease] = true
			}
		case h.expires.IsZero(): // its first attempt is under way
		case now.Before(h.expires):
			next(h.expires)
		case len(h.turn) > 0:
			next(now.Add(lookAgain))
		default:
			s.end(h)
			if h.lease != nil {
				c.keys = append(c.keys, doomed{h, h.key})
			}
		}
	}
	for l := range kept {
		due := l.refreshed.Add(l.ttl / 3)
		if l.again.After(due) {
			due = l.again
		}
		if now.Before(due) {
			next(due)
			continue
		}
		l.again = now.Add(l.ttl / 10)
		next(l.again)
		c.leases = append(c.leases, l)
	}
	s.closeIdle(now, next)
	return c
}

// remove deletes the keys of holds that are over. What cannot be deleted now ends
// with its lease.
func (s *Store) remove(list []doomed) {
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	keys := make([]string, len(list))
	for i, d := range list {
		keys[i] = d.key
	}
	err := s.deleteAll(ctx, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range list {
		if h := d.hold; h.key == d.key {
			h.doubted = h.doubted || err != nil
			s.free(h)
		}
	}
}

// prolong renews the lease of those who wait, which nobody else does.
func (s *Store) prolong(l *lease) {
	s.mu.Lock()
	limit := l.ttl / 3
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	if s.refresh(ctx, l) == nil { // else it is tried again
		s.sweep(ctx, l)
		s.rouse(l)
	}
}

// rouseEvery is after how long those who wait ask although nothing woke them: the
// member that they watch may be one that hears nothing of the others any more.
const rouseEvery = 10 * time.Second

// rouse wakes those who wait on the lease, now and then.
func (s *Store) rouse(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(l.roused) < rouseEvery {
		return
	}
	l.roused = time.Now()
	for h := range l.holds {
		if sub := s.waiting[h.identity]; sub != nil && !h.held {
			sub.wake()
		}
	}
}
