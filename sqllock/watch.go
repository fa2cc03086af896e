package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Watch implements driver.Watcher. All watches of a store share one look at
// the database, made when somebody has written to it, when a lock expires, and
// otherwise now and then; see pacer. PostgreSQL also tells which name is free.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("watch: %w", context.Cause(ctx))
	}
	w := &watch{name: req.Name, owner: req.Owner.Hex(), fair: req.Fair, wake: wake, since: time.Now()}
	if !s.watchers.add(w, func() { s.work.Go(s.poll) }) {
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

func (w *watch) subject() string { return w.name }

// watchers are all who want to be woken.
type watchers struct {
	audience[*watch]
	encoded string        // the names as a JSON list
	gone    [][2]string   // name and owner of watches that ended after they were published
	left    chan struct{} // says that there is somebody in gone
}

func newWatchers() watchers {
	return watchers{audience: newAudience[*watch](), left: make(chan struct{}, 1)}
}

// remove ends a watch. Calling it twice is fine.
func (ws *watchers) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.removeLocked(w) && !w.published.IsZero() {
		ws.gone = append(ws.gone, [2]string{w.name, w.owner})
		signal(ws.left)
	}
}

// wake is called when this store itself freed name or a place in its queue.
// Whose turn it is among fair waiters takes a look.
func (ws *watchers) wake(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byName[name] {
		if w.fair {
			signal(ws.kick)
		} else {
			w.wake()
		}
	}
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, all := range ws.byName {
		for _, w := range all {
			if !w.published.IsZero() {
				ws.gone = append(ws.gone, [2]string{w.name, w.owner})
			}
		}
	}
	ws.closeLocked()
}

// watched returns the names that are watched, and as a JSON list.
func (ws *watchers) watched() ([]string, string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names, anew := ws.collectLocked()
	if anew {
		ws.encoded = encode(names)
	}
	return names, ws.encoded
}

// retire ends the polling unless somebody needs it.
func (ws *watchers) retire() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.polling = len(ws.byName) > 0 || len(ws.gone) > 0
	return !ws.polling
}
