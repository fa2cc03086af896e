package etcdlock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/alarm"
)

// The janitor is a goroutine that deletes the keys of holds that expired while their etcd lease
// goes on for others, renews the etcd leases of waiters, and closes watches without waiters.

// busyDelay is after how long the janitor returns to an expired hold that a call uses.
const busyDelay = 50 * time.Millisecond

// setExpiryLocked sets when a hold expires unless it is renewed.
func (s *Store) setExpiryLocked(h *hold, at time.Time) {
	h.expires = at
	s.alarm.NoLaterThan(at)
}

// keepLeaseLocked makes the janitor renew the etcd lease of a waiter in time.
func (s *Store) keepLeaseLocked(h *hold) {
	if h.lease != nil && s.waiters[h.holdID] != nil {
		s.alarm.NoLaterThan(s.renewalTimeLocked(h.lease))
	}
}

// renewalTimeLocked returns when the janitor renews an etcd lease.
func (s *Store) renewalTimeLocked(l *lease) time.Time {
	return time.Now().Add(l.ttl/3 - s.ageLocked(l))
}

// clean does what is due. The alarm is set for the rest.
func (s *Store) clean(now time.Time) time.Time {
	expired, old := s.findDueWork(now)
	s.deleteExpired(expired)
	for _, l := range old {
		s.mu.Lock()
		ctx, cancel := context.WithTimeout(s.ctx, l.ttl/3)
		s.mu.Unlock()
		_ = s.renewAndClean(ctx, l) // else the janitor tries again at retryAt
		cancel()
	}
	return alarm.Never
}

// findDueWork returns the expired holds by their keys, and the etcd leases to renew. It sets the
// alarm for the rest.
func (s *Store) findDueWork(now time.Time) (expired map[string]*hold, old []*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired = make(map[string]*hold)
	waitedOn := make(map[*lease]bool)
	for id, h := range s.holds {
		switch {
		case !h.held && s.waiters[id] != nil: // a waiter does not expire
			if h.lease != nil {
				waitedOn[h.lease] = true
			}
		case h.expires.IsZero(): // its first attempt is under way
		case now.Before(h.expires):
			s.alarm.NoLaterThan(h.expires)
		case h.busy.isLocked():
			s.alarm.NoLaterThan(now.Add(busyDelay))
		default:
			s.endLocked(h)
			if h.lease != nil {
				expired[h.key] = h
			}
		}
	}
	for l := range waitedOn {
		at := s.renewalTimeLocked(l)
		if l.retryAt.After(at) {
			at = l.retryAt
		}
		if !now.Before(at) {
			old = append(old, l)
			l.retryAt = now.Add(l.ttl / 10)
			at = l.retryAt
		}
		s.alarm.NoLaterThan(at)
	}
	s.closeIdleWatchesLocked(now)
	return expired, old
}

// deleteExpired deletes the keys of expired holds. What it cannot delete ends with its etcd lease.
func (s *Store) deleteExpired(expired map[string]*hold) {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	err := s.deleteKeys(ctx, slices.Collect(maps.Keys(expired)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range expired {
		if h.key == key {
			h.unconfirmed = h.unconfirmed || err != nil
			s.unbindLocked(h)
		}
	}
}
