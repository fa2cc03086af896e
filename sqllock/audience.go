package sqllock

import (
	"slices"
	"sync"
)

// listening is one of an audience.
type listening interface {
	comparable
	subject() string // the name that it waits for
}

// audience are all who want to be woken, by name. One goroutine polls for them as long
// as there are any.
type audience[W listening] struct {
	mu      sync.Mutex
	byName  map[string][]W
	names   []string // the keys of byName; nil if they must be collected anew
	polling bool
	closed  bool
	kick    chan struct{} // asks the poller to look
}

func newAudience[W listening]() audience[W] {
	return audience[W]{byName: make(map[string][]W), kick: make(chan struct{}, 1)}
}

// add lets one more wait, and begins the polling with the first. It is false after
// close.
func (a *audience[W]) add(w W, poll func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	name := w.subject()
	if len(a.byName[name]) == 0 {
		a.names = nil
	}
	a.byName[name] = append(a.byName[name], w)
	if !a.polling {
		a.polling = true
		poll()
	}
	signal(a.kick)
	return true
}

// removeLocked lets one wait no more. It is false if it did not.
func (a *audience[W]) removeLocked(w W) bool {
	name := w.subject()
	all := a.byName[name]
	i := slices.Index(all, w)
	switch {
	case i < 0:
		return false
	case len(all) == 1:
		delete(a.byName, name)
		a.names = nil
	default:
		a.byName[name] = slices.Delete(all, i, i+1)
	}
	return true
}

// closeLocked lets nobody wait any more.
func (a *audience[W]) closeLocked() {
	a.closed = true
	clear(a.byName)
	a.names = nil
}

// collectLocked returns the names that somebody waits for, and whether they are others
// than the last time.
func (a *audience[W]) collectLocked() (names []string, anew bool) {
	if a.names != nil || len(a.byName) == 0 {
		return a.names, false
	}
	a.names = make([]string, 0, len(a.byName))
	for name := range a.byName {
		a.names = append(a.names, name)
	}
	return a.names, true
}

// signal sends unless a signal is on its way already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
