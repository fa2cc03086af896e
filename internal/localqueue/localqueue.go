// Package localqueue lets one caller of a process at a time compete for a name.
// The other callers wait in a queue, first come, first served, and cost the store
// nothing.
package localqueue

import (
	"context"
	"sync"
)

// Queue has one slot for each name that is in use, and keeps some slots of names
// that were used lately. C describes a caller. S is state that the
// callers of a slot leave to their successors. Create a Queue with [New].
type Queue[C, S any] struct {
	mu    sync.Mutex
	slots map[string]*Slot[C, S]
}

// keptSlots is the number of slots up to which an unused slot is kept.
const keptSlots = 256

// Slot is the right to compete for one name. It belongs to its occupant until
// Leave or HandOff.
type Slot[C, S any] struct {
	// State belongs to the occupant, which finds what its predecessor left, or the
	// zero value if the slot was not kept.
	State S

	queue       *Queue[C, S]
	name        string
	occupant    *C         // nil if the slot is free
	first, last *waiter[C] // in order of arrival
}

// waiter is an element of a linked list, so that a waiter can leave the queue from
// any position in constant time.
type waiter[C any] struct {
	caller     *C
	next, prev *waiter[C]
	admitted   chan struct{}
}

// New returns a queue without slots.
func New[C, S any]() *Queue[C, S] {
	return &Queue[C, S]{slots: make(map[string]*Slot[C, S])}
}

// TryEnter makes caller the occupant of the slot of name if the slot is free.
// Otherwise it returns a nil slot and the occupant.
func (q *Queue[C, S]) TryEnter(name string, caller *C) (slot *Slot[C, S], occupant *C) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.slotLocked(name)
	if s.occupant != nil {
		return nil, s.occupant
	}
	s.occupant = caller
	return s, nil
}

// Enter blocks until caller is the occupant of the slot of name. If the context
// ends first, caller leaves the queue and the error is the context's cause. A
// caller that is admitted at that very moment is the occupant.
func (q *Queue[C, S]) Enter(ctx context.Context, name string, caller *C) (*Slot[C, S], error) {
	q.mu.Lock()
	s := q.slotLocked(name)
	if s.occupant == nil {
		s.occupant = caller
		q.mu.Unlock()
		return s, nil
	}
	w := &waiter[C]{caller: caller, admitted: make(chan struct{})}
	s.push(w)
	q.mu.Unlock()

	select {
	case <-w.admitted:
		return s, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.occupant == caller {
		return s, nil
	}
	s.remove(w)
	return nil, context.Cause(ctx)
}

// Occupant returns the occupant of the slot of name, or nil.
func (q *Queue[C, S]) Occupant(name string) *C {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[name]; s != nil {
		return s.occupant
	}
	return nil
}

func (q *Queue[C, S]) slotLocked(name string) *Slot[C, S] {
	s := q.slots[name]
	if s == nil {
		s = &Slot[C, S]{queue: q, name: name}
		q.slots[name] = s
	}
	return s
}

// Leave admits the first waiter. The caller must not use the slot any more.
func (s *Slot[C, S]) Leave() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.first != nil {
		s.admit(s.first)
		return
	}
	s.occupant = nil
	if len(q.slots) > keptSlots {
		q.removeFreeLocked(s)
	}
}

// removeFreeLocked removes a free slot: any one, because the slot that was left last is likely
// to be used again, or else the given one.
func (q *Queue[C, S]) removeFreeLocked(free *Slot[C, S]) {
	for _, other := range q.slots { // in random order
		if other.occupant == nil {
			free = other
		}
		break
	}
	delete(q.slots, free.name)
}

// Next returns the first waiter, or nil.
func (s *Slot[C, S]) Next() *C {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.first == nil {
		return nil
	}
	return s.first.caller
}

// HandOff admits next if it is still the first waiter. Otherwise it returns false,
// and the slot stays with its occupant.
func (s *Slot[C, S]) HandOff(next *C) bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.first == nil || s.first.caller != next {
		return false
	}
	s.admit(s.first)
	return true
}

func (s *Slot[C, S]) admit(w *waiter[C]) {
	s.remove(w)
	s.occupant = w.caller
	close(w.admitted)
}

func (s *Slot[C, S]) push(w *waiter[C]) {
	w.prev = s.last
	if s.last == nil {
		s.first = w
	} else {
		s.last.next = w
	}
	s.last = w
}

func (s *Slot[C, S]) remove(w *waiter[C]) {
	if w.prev == nil {
		s.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		s.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}
