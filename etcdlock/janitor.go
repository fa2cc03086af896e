package etcdlock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/alarm"
)

// The janitor is a goroutine that deletes the keys of holds that expired while their lease goes
// on for others, renews the leases of waiters, and closes watches without waiters.

// busyDelay is after how long the janitor returns to an expired hold that a call uses.
const busyDelay = 50 * time.Millisecond

// expireAt sets when a hold expires unless it is renewed. The caller holds s.mu.
func (s *Store) expireAt(h *hold, at time.Time) {
	h.expires = at
	s.alarm.NoLaterThan(at)
}

// keepLease makes the janitor renew the lease of a waiter in time. The caller holds s.mu.
func (s *Store) keepLease(h *hold) {
	if h.lease != nil && s.waiters[h.holdID] != nil {
		s.alarm.NoLaterThan(s.renewalTime(h.lease))
	}
}

// renewalTime returns when the janitor renews a lease. The caller holds s.mu.
func (s *Store) renewalTime(l *lease) time.Time { return time.Now().Add(l.ttl/3 - s.age(l)) }

// clean does what is due, and returns when it has to be called again.
func (s *Store) clean(now time.Time) (next time.Time) {
	due := s.findDueWork(now)
	s.deleteExpired(due.keys)
	for _, l := range due.leases {
		s.renewForWaiters(l)
	}
	return due.next
}

// dueWork is what the janitor has to do now, and when it has to return.
type dueWork struct {
	keys   map[string]*hold // of holds that expired
	leases []*lease         // to renew
	next   time.Time
}

func (d *dueWork) noLaterThan(t time.Time) {
	if t.Before(d.next) {
		d.next = t
	}
}

func (s *Store) findDueWork(now time.Time) dueWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := dueWork{keys: make(map[string]*hold), next: alarm.Never}
	waitedOn := make(map[*lease]bool)
	for id, h := range s.holds {
		switch {
		case !h.held && s.waiters[id] != nil: // a waiter does not expire
			if h.lease != nil {
				waitedOn[h.lease] = true
			}
		case h.expires.IsZero(): // its first attempt is under way
		case now.Before(h.expires):
			due.noLaterThan(h.expires)
		case h.busy.isLocked():
			due.noLaterThan(now.Add(busyDelay))
		default:
			s.end(h)
			if h.lease != nil {
				due.keys[h.key] = h
			}
		}
	}
	for l := range waitedOn {
		at := s.renewalTime(l)
		if l.retryAt.After(at) {
			at = l.retryAt
		}
		if !now.Before(at) {
			due.leases = append(due.leases, l)
			l.retryAt = now.Add(l.ttl / 10)
			at = l.retryAt
		}
		due.noLaterThan(at)
	}
	s.closeIdleWatches(now, &due)
	return due
}

// deleteExpired deletes the keys of expired holds. What it cannot delete ends with its lease.
func (s *Store) deleteExpired(expired map[string]*hold) {
	if len(expired) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	err := s.deleteKeys(ctx, slices.Collect(maps.Keys(expired)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range expired {
		if h.key == key {
			h.unconfirmed = h.unconfirmed || err != nil
			s.unbind(h)
		}
	}
}

// renewForWaiters renews a lease with waiters.
func (s *Store) renewForWaiters(l *lease) {
	s.mu.Lock()
	limit := l.ttl / 3
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	_ = s.renewLease(ctx, l) // else the janitor tries again at retryAt
}
