// Package localqueue lets one caller of a process at a time compete for a name.
// The other callers wait in a queue, first come, first served, and cost the store
// nothing.
package localqueue

import (
	"container/list"
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
// Leave or HandOver.
type Slot[C, S any] struct {
	// State belongs to the occupant, which finds what its predecessor left, or the
	// zero value if the slot was not kept.
	State S

	queue    *Queue[C, S]
	name     string
	occupant *C        // nil if the slot is free
	previous *C        // see Callers
	waiters  list.List // of tickets in order of arrival; each can leave in constant time
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

// Enter blocks until caller is the occupant of the slot of name, or served: then the slot is
// nil. If the context ends first, caller leaves the queue and the error is the context's cause. A
// caller that is admitted or served at that very moment does not leave.
func (q *Queue[C, S]) Enter(ctx context.Context, name string, caller *C) (*Slot[C, S], error) {
	q.mu.Lock()
	ticket := q.pushLocked(q.slotLocked(name), caller)
	q.mu.Unlock()
	return ticket.Wait(ctx)
}

// Push takes a place in the queue of the slot of name. It returns nil unless behind is the caller
// that came last. A nil behind stands for a free slot.
func (q *Queue[C, S]) Push(name string, caller, behind *C) *Ticket[C, S] {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.slotLocked(name)
	if s.lastCaller() != behind {
		return nil
	}
	return q.pushLocked(s, caller)
}

func (q *Queue[C, S]) pushLocked(s *Slot[C, S], caller *C) *Ticket[C, S] {
	t := &Ticket[C, S]{slot: s, caller: caller, admitted: make(chan struct{})}
	if s.occupant == nil {
		s.occupant = caller
		close(t.admitted)
	} else {
		t.place = s.waiters.PushBack(t)
	}
	return t
}

// Ticket is a caller's place in the queue of a slot.
type Ticket[C, S any] struct {
	slot     *Slot[C, S]
	caller   *C
	place    *list.Element // in slot.waiters; nil if the slot was free
	admitted chan struct{} // closed when the caller is the occupant, or served
	served   bool          // by Serve, so that it has no slot
}

// Wait is the second half of [Queue.Enter].
func (t *Ticket[C, S]) Wait(ctx context.Context) (*Slot[C, S], error) {
	select {
	case <-t.admitted:
	case <-ctx.Done():
		if t.leave() {
			return nil, context.Cause(ctx)
		}
	}
	if t.served {
		return nil, nil
	}
	return t.slot, nil
}

// leave reports whether the caller still waited.
func (t *Ticket[C, S]) leave() bool {
	s := t.slot
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if t.served || s.occupant == t.caller {
		return false
	}
	s.waiters.Remove(t.place)
	return true
}

// Callers are the callers of a slot. All are nil if the slot is free.
type Callers[C any] struct {
	Occupant *C
	Previous *C // the last occupant before that was remembered since the slot was free; may be nil
	Last     *C // the caller that came last: the last waiter or, if none waits, the occupant
}

// Callers returns the callers of the slot of name.
func (q *Queue[C, S]) Callers(name string) Callers[C] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[name]; s != nil {
		return Callers[C]{s.occupant, s.previous, s.lastCaller()}
	}
	return Callers[C]{}
}

func (q *Queue[C, S]) slotLocked(name string) *Slot[C, S] {
	s := q.slots[name]
	if s == nil {
		s = &Slot[C, S]{queue: q, name: name}
		q.slots[name] = s
	}
	return s
}

// Leave admits the first waiter. The caller must not use the slot any more. If remember is set, the
// caller is the previous occupant from then on.
func (s *Slot[C, S]) Leave(remember bool) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := s.firstWaiter(); first != nil {
		if remember {
			s.previous = s.occupant
		}
		s.admit(first)
		return
	}
	s.occupant, s.previous = nil, nil
	if len(q.slots) <= keptSlots {
		return
	}
	// A random other slot goes first if it is free: this one is likely to be used again.
	free := s
	for _, other := range q.slots { // in random order
		if other.occupant == nil {
			free = other
		}
		break
	}
	delete(q.slots, free.name)
}

// ForgetPrevious forgets which occupant was remembered.
func (s *Slot[C, S]) ForgetPrevious() {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.previous = nil
}

// HandOver admits the first waiter if it accepts, and remembers the occupant. Otherwise it returns
// false, and the slot stays with its occupant.
func (s *Slot[C, S]) HandOver(accepts func(next *C) bool) bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	first := s.firstWaiter()
	if first == nil || !accepts(first.caller) {
		return false
	}
	s.previous = s.occupant
	s.admit(first)
	return true
}

// Serve ends the wait of the first waiter of name if it accepts: it needs no slot any more. The
// occupant stays. Serve reports whether a waiter accepted.
func (q *Queue[C, S]) Serve(name string, accepts func(next *C) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.slots[name]
	if s == nil {
		return false
	}
	first := s.firstWaiter()
	if first == nil || !accepts(first.caller) {
		return false
	}
	s.waiters.Remove(first.place)
	first.served = true
	close(first.admitted)
	return true
}

func (s *Slot[C, S]) admit(t *Ticket[C, S]) {
	s.waiters.Remove(t.place)
	s.occupant = t.caller
	close(t.admitted)
}

func (s *Slot[C, S]) firstWaiter() *Ticket[C, S] {
	if front := s.waiters.Front(); front != nil {
		return front.Value.(*Ticket[C, S])
	}
	return nil
}

func (s *Slot[C, S]) lastCaller() *C {
	if back := s.waiters.Back(); back != nil {
		return back.Value.(*Ticket[C, S]).caller
	}
	return s.occupant
}
