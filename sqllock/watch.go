package sqllock

import (
	"context"
	"iter"
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
	w := &watch{name: req.Name, owner: req.Owner.Hex(), fair: req.Fair, wake: wake, since: time.Now()}
	if !s.watchers.Join(w.name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.watchers.remove(w) }, nil
}

// watch is one call of Watch until its stop.
type watch struct {
	name, owner string
	fair        bool
	wake        func()
	since       time.Time
	published   time.Time // when its row was written last; zero if never
}

// watchers are all watches of a store.
type watchers struct {
	sqldb.PollGroup[*watch]
	encoded string        // the names as a JSON list
	gone    [][2]string   // name and owner of watches that ended after their rows were written
	left    chan struct{} // receives when gone has grown
}

func newWatchers() watchers {
	return watchers{PollGroup: sqldb.NewPollGroup[*watch](), left: make(chan struct{}, 1)}
}

// remove ends a watch. It may be called twice.
func (ws *watchers) remove(w *watch) {
	ws.Lock()
	defer ws.Unlock()
	if ws.Remove(w.name, w) && !w.published.IsZero() {
		ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		sqldb.Signal(ws.left)
	}
}

// notify is called when name, or a place in its queue, was freed. Only a poll shows which
// fair waiter is the next.
func (ws *watchers) notify(name string) {
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

func (ws *watchers) close() {
	ws.Lock()
	defer ws.Unlock()
	for w := range ws.allLocked() {
		if !w.published.IsZero() {
			ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		}
	}
	ws.CloseLocked()
}

// watched returns the names that are watched, and as a JSON list.
func (ws *watchers) watched() ([]string, string) {
	ws.Lock()
	defer ws.Unlock()
	names := ws.namesLocked()
	return names, ws.encoded
}

// namesLocked returns the names that are watched, and keeps encoded in step with them.
func (ws *watchers) namesLocked() []string {
	names, changed := ws.Names()
	if changed {
		ws.encoded = encode(names)
	}
	return names
}

// allLocked yields all watches.
func (ws *watchers) allLocked() iter.Seq[*watch] {
	return func(yield func(*watch) bool) {
		for _, name := range ws.namesLocked() {
			for _, w := range ws.Of(name) {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// retire ends the polling if nothing is left to do, and reports whether it did.
func (ws *watchers) retire() bool {
	ws.Lock()
	defer ws.Unlock()
	ws.Polling = ws.Len() > 0 || len(ws.gone) > 0
	return !ws.Polling
}
