package sqldb

import (
	"iter"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Waiter is one call of a store's Watch until its stop.
type Waiter interface {
	comparable
	Mode() driver.Mode
}

// PollGroup keeps the waiters of a store. One goroutine polls for all of them, as long as
// there are any. The mutex guards the registry and everything that the store adds to it.
type PollGroup[W Waiter] struct {
	sync.Mutex
	subscribers.Registry[W] // its methods are called with the mutex locked

	Polling bool          // the goroutine runs
	PollNow chan struct{} // asks it to poll soon
	closed  bool
	key     func(name string, w W) any
	keys    string
}

// NewPollGroup returns a group without waiters. The database knows a name by its key.
func NewPollGroup[W Waiter](key func(name string, w W) any) PollGroup[W] {
	return PollGroup[W]{PollNow: make(chan struct{}, 1), key: key}
}

// Join adds a waiter for name and calls start if the goroutine does not run. It reports
// false after CloseLocked.
func (g *PollGroup[W]) Join(name string, w W, start func()) bool {
	g.Lock()
	defer g.Unlock()
	if g.closed {
		return false
	}
	g.Add(name, w)
	if !g.Polling {
		g.Polling = true
		start()
	}
	Signal(g.PollNow)
	return true
}

// AwaitedLocked returns the names that have waiters, and their keys as a list in JSON.
func (g *PollGroup[W]) AwaitedLocked() (names []string, keys string) {
	names, changed := g.Names()
	if changed {
		all := make([]any, len(names))
		for i, name := range names {
			all[i] = g.key(name, g.Of(name)[0])
		}
		g.keys = JSON(all)
	}
	return names, g.keys
}

// AllLocked yields all waiters and their names.
func (g *PollGroup[W]) AllLocked() iter.Seq2[string, W] {
	return func(yield func(string, W) bool) {
		names, _ := g.AwaitedLocked()
		for _, name := range names {
			for _, w := range g.Of(name) {
				if !yield(name, w) {
					return
				}
			}
		}
	}
}

// Sharing returns the waiters that are not for an exclusive lock, by name.
func (g *PollGroup[W]) Sharing() map[string][]W {
	g.Lock()
	defer g.Unlock()
	sharing := make(map[string][]W)
	for name, w := range g.AllLocked() {
		if w.Mode() != (driver.Mode{}) {
			sharing[name] = append(sharing[name], w)
		}
	}
	return sharing
}

// CloseLocked removes all waiters and admits no more.
func (g *PollGroup[W]) CloseLocked() {
	g.closed = true
	g.Clear()
}

// Signal sends unless a signal waits to be received already.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
