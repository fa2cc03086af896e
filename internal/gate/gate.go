// Package gate lets one goroutine of a process through at a time for each name,
// first come, first served. Those who wait cost the store nothing.
package gate

import (
	"context"
	"sync"
)

// Gate is a set of doors, one for each name that somebody is inside of or waits
// for. T describes who is inside. The zero value is not usable; see [New].
type Gate[T any] struct {
	mu    sync.Mutex
	doors map[string]*Door[T]
	spare *Door[T] // the last door that was left, for the next name
}

// Door belongs to the one who went through it, until Leave.
type Door[T any] struct {
	gate   *Gate[T]
	name   string
	inside *T

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
func New[T any]() *Gate[T] {
	return &Gate[T]{doors: make(map[string]*Door[T])}
}

// TryEnter lets who through the door of name if nobody is inside. Otherwise it
// returns nil and who is inside.
func (g *Gate[T]) TryEnter(name string, who *T) (door *Door[T], inside *T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.doors[name]; d != nil {
		return nil, d.inside
	}
	return g.open(name, who), nil
}

// Enter waits until who may go through the door of name, or until the context
// is done; the error is then the context's cause, and the place in the queue
// is given up at once.
func (g *Gate[T]) Enter(ctx context.Context, name string, who *T) (*Door[T], error) {
	g.mu.Lock()
	d := g.doors[name]
	if d == nil {
		d = g.open(name, who)
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
	admitted := t.admitted
	if !admitted {
		d.remove(t)
	}
	g.mu.Unlock()
	if admitted {
		d.Leave()
	}
	return nil, context.Cause(ctx)
}

// open makes a door with who inside. g.mu is held.
func (g *Gate[T]) open(name string, who *T) *Door[T] {
	d := g.spare
	if d != nil {
		g.spare = nil
	} else {
		d = &Door[T]{gate: g}
	}
	d.name, d.inside = name, who
	g.doors[name] = d
	return d
}

// Leave admits the next one. The caller must not use the door any more.
func (d *Door[T]) Leave() {
	g := d.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := d.first; next != nil {
		d.remove(next)
		d.inside = next.who
		next.admitted = true
		close(next.admit)
		return
	}
	delete(g.doors, d.name)
	d.name, d.inside = "", nil
	g.spare = d
}

// Waiting counts those who wait for name.
func (g *Gate[T]) Waiting(name string) int {
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

// Len counts the doors.
func (g *Gate[T]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.doors)
}

func (d *Door[T]) push(t *ticket[T]) {
	t.prev = d.last
	if d.last == nil {
		d.first = t
	} else {
		d.last.next = t
	}
	d.last = t
}

func (d *Door[T]) remove(t *ticket[T]) {
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
