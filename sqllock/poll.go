package sqllock

import (
	"database/sql"
	"time"

	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// poll polls the names that have waiters, until none has or the store is closed.
// One goroutine of a store polls at a time; the one before may still be stopping.
func (s *Store) poll() {
	source := s.dialect.follow(s)
	defer source.Stop()
	stopPublishing := s.publishWaiters()
	defer stopPublishing()
	schedule := source.Schedule
	timer := time.NewTimer(0)
	defer timer.Stop()
	lingering := false
	for {
		names, encoded := s.waiters.awaited()
		events := source.Events
		if len(names) == 0 || schedule.Pending() {
			events = nil // an event would cause no poll, or none sooner
		}
		select {
		case <-s.closing:
			return
		case <-events:
			schedule.Changed(time.Now())
		case <-s.waiters.Kick:
			schedule.Asked(time.Now())
		case <-timer.C:
			now := time.Now()
			switch {
			case len(names) > 0:
				lingering = false
				result, err := s.pollOnce(names, encoded)
				schedule.Polled(now, time.Now(), result, err)
			case lingering && s.waiters.retire():
				return
			default:
				lingering = true
				schedule.Idle(now)
			}
		}
		timer.Reset(time.Until(schedule.Due()))
	}
}

// polledName is what a poll says about one name.
type polledName struct {
	index     int
	remaining int64 // of the lock; zero if it is free
	head      sql.NullString
	headLeft  sql.NullInt64
	recent    bool // it was granted a moment ago
}

// pollOnce wakes the waiters whose attempts may succeed.
func (s *Store) pollOnce(names []string, encoded string) (result notify.Result, err error) {
	var polled []polledName
	ctx, cancel := s.background()
	defer cancel()
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return result, ctx.Err()
	}
	err = s.run().Each(ctx, statement.Poll, []any{encoded, notify.NotifiedInterval.Milliseconds()}, func(scan func(...any) error) error {
		var p polledName
		err := scan(&p.index, &p.remaining, &p.head, &p.headLeft, &p.recent)
		polled = append(polled, p)
		return err
	})
	<-s.reading
	if err != nil {
		return result, err
	}
	s.waiters.Lock()
	defer s.waiters.Unlock()
	for _, p := range polled {
		left := p.remaining
		result.Moving = result.Moving || left == 0 || p.recent
		if left == 0 {
			left = p.headLeft.Int64
			s.wakeLocked(names[p.index], p.head)
		}
		if d := remaining(left); d > 0 && (result.Expiry == 0 || d < result.Expiry) {
			result.Expiry = d
		}
	}
	return result, nil
}

// wakeLocked wakes the waiters for a free lock. Of the fair ones that is the head of the
// queue, which then need not read again whether it is.
func (s *Store) wakeLocked(name string, head sql.NullString) {
	for _, w := range s.waiters.Of(name) {
		switch {
		case !w.fair:
			w.wake()
		case !head.Valid || head.String == w.owner:
			s.refused.remove(name)
			w.wake()
		}
	}
}
