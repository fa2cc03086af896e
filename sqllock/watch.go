package sqllock

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Watch implements driver.Watcher. One poll of the database serves all watches of a store.
// It is made when a process has written to the database, when a lock expires, and otherwise
// now and then; see package notify. PostgreSQL also notifies of the name that became free.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := ended(ctx, "watch"); err != nil {
		return nil, err
	}
	w := &waiter{name: req.Name, owner: req.Owner.Hex(), fair: req.Fair, wake: wake, since: time.Now()}
	if !s.waiters.Join(w.name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.waiters.remove(w) }, nil
}

// waiter is one call of Watch until its stop.
type waiter struct {
	name, owner string
	fair        bool
	wake        func()
	since       time.Time
	published   time.Time // when its row was written last; zero if never
}

// waiters are all waiters of a store.
type waiters struct {
	sqldb.PollGroup[*waiter]
	gone [][2]string   // name and owner of waiters that left after their rows were written
	left chan struct{} // receives when gone has grown
}

func newWaiters() waiters {
	return waiters{PollGroup: sqldb.NewPollGroup(func(name string, _ *waiter) any { return name }), left: make(chan struct{}, 1)}
}

// remove removes a waiter. It may be called twice.
func (ws *waiters) remove(w *waiter) {
	ws.Lock()
	defer ws.Unlock()
	if ws.Remove(w.name, w) && !w.published.IsZero() {
		ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		sqldb.Signal(ws.left)
	}
}

// notify is called when name, or a place in its queue, was freed. Only a poll shows which
// fair waiter is the next.
func (ws *waiters) notify(name string) {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.Of(name) {
		if w.fair {
			sqldb.Signal(ws.Kick)
		} else {
			w.wake()
		}
	}
}

func (ws *waiters) close() {
	ws.Lock()
	defer ws.Unlock()
	for w := range ws.AllLocked() {
		if !w.published.IsZero() {
			ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		}
	}
	ws.CloseLocked()
}

// awaited returns the names that have waiters, and as a list in JSON.
func (ws *waiters) awaited() ([]string, string) {
	ws.Lock()
	defer ws.Unlock()
	return ws.AwaitedLocked()
}

// retire ends the polling if nothing is left to do, and reports whether it did.
func (ws *waiters) retire() bool {
	ws.Lock()
	defer ws.Unlock()
	ws.Polling = ws.Len() > 0 || len(ws.gone) > 0
	return !ws.Polling
}

// List counts fair waiters by their places. The others get rows when they have waited for
// a while, so that short waits write nothing.
const (
	publishAfter   = 250 * time.Millisecond
	publishTTL     = 30 * time.Second
	publishRefresh = 10 * time.Second
)

// publishWaiters writes the rows of waiters until stop is called, which deletes what is
// left. It runs beside the polling, which must not wait for a writer.
func (s *Store) publishWaiters() (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		ticker := time.NewTicker(publishAfter)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				s.unpublish()
				return
			case now := <-ticker.C:
				s.publish(now)
			case <-s.waiters.left:
			}
			s.unpublish()
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// publish writes the rows of waiters. If that fails, a list is incomplete until the next
// time.
func (s *Store) publish(now time.Time) {
	if due := s.waiters.takeDue(now); len(due) > 0 {
		ctx, cancel := s.background()
		defer cancel()
		_, _ = s.change(ctx, "publish", &batch.Job{}, statement.Publish, sqldb.JSON(due), publishTTL.Milliseconds())
	}
}

// unpublish deletes the rows of waiters that have left, also while the store is being
// closed. If that fails, the rows expire.
func (s *Store) unpublish() {
	gone := s.waiters.takeGone()
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
	defer cancel()
	_ = s.writeAnyway(ctx, func() error {
		_, err := s.run().Exec(ctx, statement.Unpublish, sqldb.JSON(gone))
		return err
	})
}

// takeDue returns the waiters whose rows are to be written now.
func (ws *waiters) takeDue(now time.Time) (due [][2]string) {
	ws.Lock()
	defer ws.Unlock()
	for w := range ws.AllLocked() {
		if !w.fair && now.Sub(w.since) >= publishAfter && now.Sub(w.published) >= publishRefresh {
			w.published = now
			due = append(due, [2]string{w.name, w.owner})
		}
	}
	return due
}

func (ws *waiters) takeGone() [][2]string {
	ws.Lock()
	defer ws.Unlock()
	gone := ws.gone
	ws.gone = nil
	return gone
}

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
