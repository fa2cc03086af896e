package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Watch implements driver.Watcher. All watches of a store share one look at
// the database, made when somebody has written to it, when a lock expires, and
// otherwise now and then; see pacer. PostgreSQL also tells which name is free.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("watch: %w", context.Cause(ctx))
	}
	w := &watch{name: req.Name, owner: req.Owner.Hex(), fair: req.Fair, wake: wake, since: time.Now()}
	if !s.watchers.Join(w.name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.watchers.remove(w) }, nil
}

// watch is one who wants to be woken.
type watch struct {
	name, owner string
	fair        bool
	wake        func()
	since       time.Time
	published   time.Time // when others could last be told that it waits; zero if never
}

// watchers are all who want to be woken.
type watchers struct {
	sqldb.PollGroup[*watch]
	encoded string        // the names as a JSON list
	gone    [][2]string   // name and owner of watches that ended after they were published
	left    chan struct{} // says that there is somebody in gone
}

func newWatchers() watchers {
	return watchers{PollGroup: sqldb.NewPollGroup[*watch](), left: make(chan struct{}, 1)}
}

// remove ends a watch. Calling it twice is fine.
func (ws *watchers) remove(w *watch) {
	ws.Lock()
	defer ws.Unlock()
	if ws.Remove(w.name, w) && !w.published.IsZero() {
		ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		sqldb.Signal(ws.left)
	}
}

// wake is called when this store itself freed name or a place in its queue.
// Whose turn it is among fair waiters takes a look.
func (ws *watchers) wake(name string) {
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
	for _, name := range ws.namesLocked() {
		for _, w := range ws.Of(name) {
			if !w.published.IsZero() {
				ws.gone = append(ws.gone, [2]string{w.name, w.owner})
			}
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

// retire ends the polling unless somebody needs it.
func (ws *watchers) retire() bool {
	ws.Lock()
	defer ws.Unlock()
	ws.Polling = ws.Len() > 0 || len(ws.gone) > 0
	return !ws.Polling
}
