// Package workerpool runs functions in goroutines that are used again. A call into a
// store's client needs a deep stack, and a new goroutine spends more time on growing its
// stack than on the call.
package workerpool

import (
	"sync"
	"sync/atomic"
)

// Pool runs functions in the background. Create one with [New].
type Pool struct {
	tasks chan func() // unbuffered: only an idle worker receives
	quit  chan struct{}
	once  sync.Once
	idle  atomic.Int64
	most  int64
}

// New returns a pool that keeps at most that many idle workers, with their stacks, until Close.
func New(idle int) *Pool {
	return &Pool{tasks: make(chan func()), quit: make(chan struct{}), most: int64(idle)}
}

// Go calls f in the background. It never waits for a worker: if none is idle, it starts one.
func (p *Pool) Go(f func()) {
	select {
	case p.tasks <- f:
	default:
		go p.work(f)
	}
}

func (p *Pool) work(f func()) {
	for {
		f()
		if p.idle.Add(1) > p.most {
			p.idle.Add(-1)
			return
		}
		select {
		case f = <-p.tasks:
			p.idle.Add(-1)
		case <-p.quit:
			return
		}
	}
}

// Close stops idle workers, and busy ones when their function returns. It does not wait for
// them. Close may be called twice.
func (p *Pool) Close() { p.once.Do(func() { close(p.quit) }) }
