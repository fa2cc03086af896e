// Package subscribers keeps the waiters that a store notifies.
package subscribers

import (
	"maps"
	"slices"
	"sync"
)

// Subscriber is a function that can be stopped.
type Subscriber struct {
	mu      sync.Mutex
	wake    func()
	stopped bool
}

// New returns a subscriber that calls wake, which must not block.
func New(wake func()) *Subscriber { return &Subscriber{wake: wake} }

// Notify calls wake, unless the subscriber was stopped.
func (s *Subscriber) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.wake()
	}
}

// Stop ends the notifications: once it has returned, wake is not called and no call of it
// is under way. Stop may be called twice.
func (s *Subscriber) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// Registry keeps subscribers of any kind by the name that they wait for. Its zero value is
// ready to use. It is not safe for concurrent use: its store's mutex guards it.
type Registry[S comparable] struct {
	byName map[string][]S
	names  []string // the keys of byName; nil if they have to be collected again
}

// Add lets s wait for name.
func (r *Registry[S]) Add(name string, s S) {
	if r.byName == nil {
		r.byName = make(map[string][]S)
	}
	if len(r.byName[name]) == 0 {
		r.names = nil
	}
	r.byName[name] = append(r.byName[name], s)
}

// Remove undoes one Add, and reports whether there was one.
func (r *Registry[S]) Remove(name string, s S) bool {
	list := r.byName[name]
	i := slices.Index(list, s)
	switch {
	case i < 0:
		return false
	case len(list) == 1:
		delete(r.byName, name)
		r.names = nil
	default:
		r.byName[name] = slices.Delete(list, i, i+1)
	}
	return true
}

// Of returns the subscribers of a name, in the order in which they were added. The caller
// must not keep the slice after the next Add or Remove.
func (r *Registry[S]) Of(name string) []S { return r.byName[name] }

// Names returns the names that have subscribers, in no particular order, and whether this call
// collected them again; nil and false if there are none. The caller must not change the slice.
func (r *Registry[S]) Names() (names []string, changed bool) {
	if r.names != nil || len(r.byName) == 0 {
		return r.names, false
	}
	r.names = slices.Collect(maps.Keys(r.byName))
	return r.names, true
}

// Len returns how many names have subscribers.
func (r *Registry[S]) Len() int { return len(r.byName) }

// Clear removes all subscribers.
func (r *Registry[S]) Clear() {
	clear(r.byName)
	r.names = nil
}
