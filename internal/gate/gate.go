// Package gate lets one goroutine of a process through at a time for each name,
// first come, first served. Those who wait cost the store nothing.
package gate

import (
	"context"
	"sync"
)

// Gate is a set of doors, one for each name that somebody is inside of or waits
// for, and some for names that are likely to be used again. T describes who is
// inside, and S is what those who follow each other through a door hand on. The
// zero value is not usable; see [New].
type Gate[T, S any] struct {
	mu    sync.Mutex
	doors map[string]*Door[T, S]
}

// keep is how many doors there may be for an unused one to be kept.
const keep = 256

// Door belongs to the one who went through it, until Leave.
type Door[T, S any] struct {
	// State belongs to the one inside, who finds what the one before has left, or
	// the zero value where that is long ago.
	State S

	gate   *Gate[T, S]
	name   string
	inside *T // nil when nobody is

	first, last *ticket[T] // those who wait, in order of arrival
}

// ticket is one waiter. It is linked, so that leaving the queue costs the same
// from every place in it.
type ticket[T any] struct {
	who        *T
	next, prev *ticket[T]
	admitted   bool
	admit      chan struct{} // closed when admitted
}

// New returns a gate without doors.
func New[T, S any]() *Gate[T, S] {
	return &Gate[T, S]{doors: make(map[string]*Door[T, S])}
}

// TryEnter lets who through the door of name if nobody is inside. Otherwise it
// returns nil and who is inside.
func (g *Gate[T, S]) TryEnter(name string, who *T) (door *Door[T, S], inside *T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.door(name)
	if d.inside != nil {
		return nil, d.inside
	}
	d.inside = who
	return d, nil
}

// Enter waits until who may go through the door of name, or until the context
// is done; the error is then the context's cause, and the place in the queue
// is given up at once. Whoever is admitted in that very moment is inside.
func (g *Gate[T, S]) Enter(ctx context.Context, name string, who *T) (*Door[T, S], error) {
	g.mu.Lock()
	d := g.door(name)
	if d.inside == nil {
		d.inside = who
		g.mu.Unlock()
		return d, nil
	}
	t := &ticket[T]{who: who, admit: make(chan struct{})}
	d.push(t)
	g.mu.Unlock()

	select {
	case <-t.admit:
		return d, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.admitted {
		return d, nil
	}
	d.remove(t)
	return nil, context.Cause(ctx)
}

// door finds or makes the door of name. g.mu is held.
func (g *Gate[T, S]) door(name string) *Door[T, S] {
	d := g.doors[name]
	if d == nil {
		d = &Door[T, S]{gate: g, name: name}
		g.doors[name] = d
	}
	return d
}

// Leave admits the next one. The caller must not use the door any more.
func (d *Door[T, S]) Leave() {
	g := d.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	next := d.first
	if next == nil {
		d.inside = nil
		if len(g.doors) > keep {
			delete(g.doors, d.name)
		}
		return
	}
	d.admit(next)
}

// Next is who waits first; nil if nobody does. The caller is inside.
func (d *Door[T, S]) Next() *T {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	if d.first == nil {
		return nil
	}
	return d.first.who
}

// Hand is Leave if who is still the next one. Otherwise the caller stays inside.
func (d *Door[T, S]) Hand(who *T) bool {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	next := d.first
	if next == nil || next.who != who {
		return false
	}
	d.admit(next)
	return true
}

func (d *Door[T, S]) admit(next *ticket[T]) {
	d.remove(next)
	d.inside = next.who
	next.admitted = true
	close(next.admit)
}

// Inside returns the caller that is inside the door of name, or nil.
func (g *Gate[T, S]) Inside(name string) *T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.doors[name]; d != nil {
		return d.inside
	}
	return nil
}

// Waiting counts those who wait for name.
func (g *Gate[T, S]) Waiting(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	if d := g.doors[name]; d != nil {
		for t := d.first; t != nil; t = t.next {
			n++
		}
	}
	return n
}

// Busy counts the doors that somebody is inside of.
func (g *Gate[T, S]) Busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, d := range g.doors {
		if d.inside != nil {
			n++
		}
	}
	return n
}

func (d *Door[T, S]) push(t *ticket[T]) {
	t.prev = d.last
	if d.last == nil {
		d.first = t
	} else {
		d.last.next = t
	}
	d.last = t
}

func (d *Door[T, S]) remove(t *ticket[T]) {
	if t.prev == nil {
		d.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		d.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.next, t.prev = nil, nil
}
