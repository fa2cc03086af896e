// Package once calls a function once.
package once

import (
	"sync"
	"sync/atomic"
)

// Once is a sync.Once whose other callers wait at a channel, so that a bubble of testing/synctest does not
// hang when they wait for a call to the store.
type Once struct {
	state  atomic.Int32
	waited atomic.Bool // a caller waits, or is about to

	mu   sync.Mutex
	wait chan struct{} // closed at the end; nil while no caller waits
}

// The states of a Once.
const (
	begun = 1 + iota
	done
)

// Do calls f if no other call has begun to, and returns when f has returned.
func (o *Once) Do(f func()) {
	switch {
	case o.state.CompareAndSwap(0, begun):
		defer o.end() // also if f panics, in a hook
		f()
	case o.state.Load() == begun:
		if wait := o.subscribe(); o.state.Load() == begun {
			<-wait
		}
	}
}

// subscribe returns a channel that end closes if the state is not done afterwards.
func (o *Once) subscribe() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wait == nil {
		o.wait = make(chan struct{})
	}
	o.waited.Store(true)
	return o.wait
}

func (o *Once) end() {
	o.state.Store(done)
	if o.waited.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		close(o.wait)
	}
}
