package sqllock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Watch implements driver.Watcher. All watches of a store share one look at
// the database, made when somebody has written to it, when a lock expires, and
// otherwise now and then; see pacer. PostgreSQL also tells which name is free.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("sqllock: watch: %w", context.Cause(ctx))
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

// watchers are all who want to be woken.
type watchers struct {
	mu      sync.Mutex
	byName  map[string][]*watch
	names   []string    // the keys of byName; nil if they must be collected anew
	encoded string      // names as a JSON list
	gone    [][2]string // name and owner of watches that ended after they were published
	polling bool
	closed  bool
	kick    chan struct{} // asks the poller to look
	left    chan struct{} // says that there is somebody in gone
}

func newWatchers() watchers {
	return watchers{byName: make(map[string][]*watch), kick: make(chan struct{}, 1), left: make(chan struct{}, 1)}
}

// add begins a watch, and the polling with the first. It is false after close.
func (ws *watchers) add(w *watch, poll func()) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return false
	}
	if len(ws.byName[w.name]) == 0 {
		ws.names = nil
	}
	ws.byName[w.name] = append(ws.byName[w.name], w)
	if !ws.polling {
		ws.polling = true
		poll()
	}
	signal(ws.kick)
	return true
}

// remove ends a watch. Calling it twice is fine.
func (ws *watchers) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := ws.byName[w.name]
	i := slices.Index(all, w)
	switch {
	case i < 0:
		return
	case len(all) == 1:
		delete(ws.byName, w.name)
		ws.names = nil
	default:
		ws.byName[w.name] = slices.Delete(all, i, i+1)
	}
	if !w.published.IsZero() {
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

// signal sends unless a signal is on its way already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for name, all := range ws.byName {
		for _, w := range all {
			if !w.published.IsZero() {
				ws.gone = append(ws.gone, [2]string{w.name, w.owner})
			}
		}
		delete(ws.byName, name)
	}
	ws.names = nil
}

// watched returns the names that are watched, and as a JSON list.
func (ws *watchers) watched() ([]string, string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.names == nil && len(ws.byName) > 0 {
		ws.names = make([]string, 0, len(ws.byName))
		for name := range ws.byName {
			ws.names = append(ws.names, name)
		}
		ws.encoded = encode(ws.names)
	}
	return ws.names, ws.encoded
}

// retire ends the polling unless somebody needs it.
func (ws *watchers) retire() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.polling = len(ws.byName) > 0 || len(ws.gone) > 0
	return !ws.polling
}
