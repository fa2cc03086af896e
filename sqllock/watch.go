package sqllock

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Watch implements driver.Watcher. One poll of the database serves all watches of a store.
// It is made when a lock expires, in SQLite when a process has written to the database, and
// otherwise now and then; see package notify. PostgreSQL notifies of the name that became free.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := checkContext(ctx, "watch"); err != nil {
		return nil, err
	}
	w := &waiter{req: req, name: req.Name, owner: req.Owner.Hex(), wake: wake, since: time.Now()}
	if !s.waiters.Join(req.Name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.waiters.remove(w) }, nil
}

// waiter is one call of Watch until its stop.
type waiter struct {
	req         driver.Request
	name, owner string
	wake        func()
	since       time.Time
	published   time.Time // when its row was written last; zero if never
}

// row returns the name and the owner of the row that is written for a waiter without a place. The owner is
// written in another way than in a place, which may follow.
func (w *waiter) row() [2]string {
	return [2]string{w.name, base64.RawURLEncoding.EncodeToString(w.req.Owner[:])}
}

// Mode implements sqldb.Waiter.
func (w *waiter) Mode() driver.Mode { return w.req.Mode }

// waiters are all waiters of a store.
type waiters struct {
	sqldb.PollGroup[*waiter]
	gone         [][2]string   // rows of waiters that left
	unpublishNow chan struct{} // asks to delete the rows of gone
	crowds       crowds        // nil if they are not counted
}

// remove removes a waiter. It may be called twice.
func (ws *waiters) remove(w *waiter) {
	ws.Lock()
	defer ws.Unlock()
	if ws.Remove(w.name, w) {
		ws.unpublishLocked(w)
	}
}

// unpublishLocked schedules the deletion of the waiter's row, if it was written.
func (ws *waiters) unpublishLocked(w *waiter) {
	if !w.published.IsZero() {
		ws.gone = append(ws.gone, w.row())
		sqldb.Signal(ws.unpublishNow)
		w.published = time.Time{}
	}
}

// notify is called when name, a permit of it, or a place in its queue, was freed. Only a poll shows
// which fair waiter is the next, and how many permits are free.
func (ws *waiters) notify(name string) {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.Of(name) {
		if w.req.Fair || w.req.Mode.Limit > 0 {
			sqldb.Signal(ws.PollNow)
		} else {
			w.wake()
		}
	}
}

func (ws *waiters) close() {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.AllLocked() {
		ws.unpublishLocked(w)
	}
	ws.CloseLocked()
}

// retire ends the polling if there is nothing more to do, and reports whether it did.
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
	// publishLateness is how late a row may be written again on a busy machine.
	publishLateness = 2 * time.Second
)

// followWaiters counts the processes that wait, except while notifies, which may be nil, returns true, and
// writes the rows of waiters, until done is closed. Then it deletes what is left. It runs beside the polling,
// which must not wait for it.
func (s *Store) followWaiters(done <-chan struct{}, notifies func() bool) {
	ticker := time.NewTicker(publishAfter)
	defer ticker.Stop()
	for open := true; open; {
		select {
		case <-done:
			open = false
		case now := <-ticker.C:
			if notifies == nil || !notifies() {
				s.countProcesses()
			}
			s.publish(now)
		case <-s.waiters.unpublishNow:
		}
		s.unpublish()
	}
}

// publish writes the rows of waiters. If that fails, a list is incomplete until the next
// time.
func (s *Store) publish(now time.Time) {
	if due := s.waiters.takeDue(now, s.places.Has); len(due) > 0 {
		ctx, cancel := s.background()
		defer cancel()
		_, _ = s.runStatement(ctx, "publish", "", statement.Publish, sqldb.JSON(due), publishTTL.Milliseconds())
	}
}

// unpublish deletes the rows of waiters that have left, also while the store is being
// closed. If that fails, the rows expire.
func (s *Store) unpublish() {
	s.waiters.Lock()
	gone := s.waiters.gone
	s.waiters.gone = nil
	s.waiters.Unlock()
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

// takeDue returns the waiters whose rows are to be written now. A place is a row, too: the waiter
// needs no other one.
func (ws *waiters) takeDue(now time.Time, placed func(owner string) bool) (due [][2]string) {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.AllLocked() {
		switch {
		case w.req.Fair:
		case placed(w.owner):
			ws.unpublishLocked(w)
		case now.Sub(w.since) >= publishAfter && now.Sub(w.published) >= publishRefresh:
			w.published = now
			due = append(due, w.row())
		}
	}
	return due
}
