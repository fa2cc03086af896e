package sqldb

import (
	"sync"

	"github.com/dlock-go/dlock/internal/subscribers"
)

// PollGroup keeps the subscribers of a store. One goroutine polls for all of them, as long
// as there are any. The mutex guards the registry and everything that the store adds to it.
type PollGroup[S comparable] struct {
	sync.Mutex
	subscribers.Registry[S]
	Polling bool          // the goroutine runs
	Kick    chan struct{} // asks it to poll soon
	closed  bool
}

// NewPollGroup returns a group without subscribers.
func NewPollGroup[S comparable]() PollGroup[S] {
	return PollGroup[S]{Kick: make(chan struct{}, 1)}
}

// Join adds a subscriber of name and calls start if the goroutine does not run. It reports
// false after Close.
func (g *PollGroup[S]) Join(name string, s S, start func()) bool {
	g.Lock()
	defer g.Unlock()
	if g.closed {
		return false
	}
	g.Add(name, s)
	if !g.Polling {
		g.Polling = true
		start()
	}
	Signal(g.Kick)
	return true
}

// CloseLocked removes all subscribers and admits no more.
func (g *PollGroup[S]) CloseLocked() {
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
