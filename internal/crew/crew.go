// Package crew runs functions in goroutines that are used again. A call into a
// client of a store goes deep, and a goroutine that is new for each of them spends
// more time on growing its stack than on anything else.
package crew

import (
	"sync"
	"sync/atomic"
)

// Crew runs functions in the background. Make one with New.
type Crew struct {
	tasks chan func() // has no room: a task is taken only by somebody who is idle
	quit  chan struct{}
	once  sync.Once
	idle  atomic.Int64
	most  int64
}

// New returns a crew of which at most that many stay when they have nothing to do.
func New(idle int) *Crew {
	return &Crew{tasks: make(chan func()), quit: make(chan struct{}), most: int64(idle)}
}

// Go calls f in the background, at once.
func (c *Crew) Go(f func()) {
	select {
	case c.tasks <- f:
	default:
		go c.work(f)
	}
}

func (c *Crew) work(f func()) {
	for {
		f()
		if c.idle.Add(1) > c.most {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.tasks:
			c.idle.Add(-1)
		case <-c.quit:
			return
		}
	}
}

// Dismiss sends those away who have nothing to do. It does not wait for others,
// who leave when they are done, and may be called twice.
func (c *Crew) Dismiss() { c.once.Do(func() { close(c.quit) }) }
