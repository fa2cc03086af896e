package sqllock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
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
