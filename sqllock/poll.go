package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/share"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// poll polls the names that have waiters, until none has or the store is closed.
// One goroutine of a store polls at a time; the one before may still be stopping.
func (s *Store) poll() {
	source := s.dialect.follow(s)
	defer source.Stop()
	done := make(chan struct{})
	defer close(done)
	s.work.Go(func() { s.followWaiters(done, source.Notifies) })
	schedule := source.Schedule
	timer := time.NewTimer(0)
	defer timer.Stop()
	lingering := false
	for {
		s.waiters.Lock()
		names, encoded := s.waiters.AwaitedLocked()
		s.waiters.Unlock()
		events := source.Events
		if len(names) == 0 || schedule.Pending() {
			events = nil // an event would cause no poll, or none sooner
		}
		select {
		case <-s.closing:
			return
		case <-events:
			schedule.Changed(time.Now())
		case <-s.waiters.PollNow:
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
	index         int
	remaining     int64 // of the lock; zero if it is free
	head          sql.NullString
	headRemaining sql.NullInt64
	recent        bool // it was granted a moment ago
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
		err := scan(&p.index, &p.remaining, &p.head, &p.headRemaining, &p.recent)
		polled = append(polled, p)
		return err
	})
	var shares []polledShares
	if err == nil {
		shares, err = s.readShares(ctx)
	}
	<-s.reading
	if err != nil {
		return result, err
	}
	s.waiters.Lock()
	defer s.waiters.Unlock()
	result.Processes = s.waiters.crowdLocked(names, s.places.Has)
	for _, p := range polled {
		ms := p.remaining
		result.Moving = result.Moving || ms == 0 || p.recent
		if ms == 0 {
			ms = p.headRemaining.Int64
			s.wakeLocked(names[p.index], p.head)
		}
		result.ExpiresIn(remaining(ms))
	}
	for i := range shares {
		s.wakeSharesLocked(&shares[i], &result)
	}
	return result, nil
}

// wakeLocked wakes the exclusive waiters for a free lock. Of the fair ones that is the head of the
// queue, which then need not read again whether it is.
func (s *Store) wakeLocked(name string, head sql.NullString) {
	for _, w := range s.waiters.Of(name) {
		switch {
		case w.Mode() != (driver.Mode{}): // see wakeSharesLocked
		case !w.req.Fair:
			w.wake()
		case !head.Valid || head.String == w.owner:
			s.refused.Put(name, false)
			w.wake()
		}
	}
}

// pollPlaces is how many places of a name a poll reads. A waiter behind them has its turn later.
const pollPlaces = 100

// polledShares is what a poll says about a name that has waiters for shared locks or permits.
type polledShares struct {
	name   string
	lock   *row.Lock
	places []share.Place[string] // the first ones, in the order of arrival; they expire in so many milliseconds
}

// readShares reads the names that have waiters for shared locks or permits. It reads places only
// where a holder does not exclude all these waiters.
func (s *Store) readShares(ctx context.Context) (polled []polledShares, err error) {
	sharing := s.waiters.Sharing()
	if len(sharing) == 0 {
		return nil, nil
	}
	locks, err := readRows(ctx, s.run(), statement.ReadRows, slices.Collect(maps.Keys(sharing)))
	if err != nil {
		return nil, err
	}
	for name, waiters := range sharing {
		p := polledShares{name: name, lock: cmp.Or(locks[name], &row.Lock{})}
		if slices.ContainsFunc(waiters, func(w *waiter) bool { return p.lock.Excluding(w.req.Mode) == nil }) {
			if p.places, err = s.readPlaces(ctx, name); err != nil {
				return nil, err
			}
		}
		polled = append(polled, p)
	}
	return polled, nil
}

func (s *Store) readPlaces(ctx context.Context, name string) (places []share.Place[string], err error) {
	err = s.run().Each(ctx, statement.Places, []any{name, pollPlaces}, func(scan func(...any) error) error {
		var p share.Place[string]
		var mode string
		err := scan(&p.Owner, &mode, &p.Fair, &p.Expires)
		p.Mode = modeOf(mode)
		places = append(places, p)
		return err
	})
	return places, err
}

// wakeSharesLocked wakes the waiters for shared locks and permits whose attempts may succeed: as
// many for permits as are free.
func (s *Store) wakeSharesLocked(p *polledShares, result *notify.Result) {
	woken := 0
	for _, w := range s.waiters.Of(p.name) {
		if w.Mode() == (driver.Mode{}) {
			continue
		}
		if h := p.lock.Excluding(w.req.Mode); h != nil {
			result.ExpiresIn(remaining(p.lock.Remaining(h)))
			continue
		}
		if before := p.lock.Before(p.places, w.owner, &w.req); before != nil {
			result.ExpiresIn(remaining(before.Expires))
			if fair := before.Fair || w.req.Mode.Limit > 0; fair && !w.req.Fair {
				w.wake() // to find out that there is a queue
			}
			continue
		}
		if w.req.Mode.Limit > 0 && woken >= w.req.Mode.Limit-len(p.lock.Shares) {
			continue
		}
		woken++
		result.Moving = true
		s.refused.Put(p.name, false)
		w.wake()
	}
}
