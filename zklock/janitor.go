package zklock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/backoff"
)

// clean is the janitor: it releases what has expired, and sets the alarm for the rest.
func (s *Store) clean(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		switch {
		case now.Before(h.expires):
			s.alarm.NoLaterThan(h.expires)
		case h.expiredLocked() && !h.expiring:
			h.expiring = true
			s.backgroundLocked(func(ctx context.Context) { s.expire(ctx, h) })
		}
	}
	return alarm.Never
}

// expireNowLocked makes the janitor release the hold as soon as a server answers.
func (s *Store) expireNowLocked(h *hold) {
	h.held = false
	s.setExpiryLocked(h, 0)
}

// expire releases a hold that has expired. It tries until the store is closed.
func (s *Store) expire(ctx context.Context, h *hold) {
	h.busy.Lock()
	defer s.unlockHold(h)
	s.mu.Lock()
	expired := h.expiredLocked()
	h.expiring = expired
	if expired {
		h.held, h.keepPlace = false, false
	} else {
		s.alarm.NoLaterThan(h.expires) // the hold was renewed meanwhile
	}
	s.mu.Unlock()
	if expired && !h.ended {
		untilDone(ctx, func() error {
			_, _, err := s.releaseNodes(ctx, h)
			return err
		})
	}
	s.withLock(func() { h.expiring = false })
}

// untilDone calls f until it succeeds or ctx ends.
func untilDone(ctx context.Context, f func() error) {
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for ctx.Err() == nil && f() != nil {
		_ = pause.Wait(ctx)
	}
}
