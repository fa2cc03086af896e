// Package ending ends contexts that depend on each other.
package ending

import (
	"context"
	"sync"
)

// Ending ends a context, and the contexts that follow it, in the goroutine that calls End: with
// context.AfterFunc they would end a goroutine switch later, in which the program could do something.
type Ending struct {
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	cause     error // nil before the end
	followers map[*Ending]struct{}
}

// New returns the ending of a context that cancel ends.
func New(cancel context.CancelCauseFunc) *Ending { return &Ending{cancel: cancel} }

// End ends the context and its followers.
func (e *Ending) End(cause error) {
	e.mu.Lock()
	if e.cause == nil {
		e.cause = cause
	}
	followers := e.followers
	e.followers = nil
	e.mu.Unlock()
	e.cancel(cause)
	for follower := range followers {
		follower.End(cause)
	}
}

// Follow makes follower end when e does, until stop is called.
func (e *Ending) Follow(follower *Ending) (stop func()) {
	e.mu.Lock()
	cause := e.cause
	if cause == nil {
		if e.followers == nil {
			e.followers = make(map[*Ending]struct{})
		}
		e.followers[follower] = struct{}{}
	}
	e.mu.Unlock()
	if cause != nil {
		follower.End(cause)
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.followers, follower)
	}
}
