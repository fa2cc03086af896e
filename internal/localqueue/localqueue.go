// Package localqueue lets one caller of a process at a time compete for a name.
// The other callers wait in a queue, first come, first served, and cost the store
// nothing.
package localqueue

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Queue has one slot for each name that is in use, and keeps some slots of names that were used
// lately. W is what a waiter leaves with its place, for the callers that serve it. O is what others may know
// of an occupant. S is state that the occupants of a slot leave to their successors. Create a Queue
// with [New].
type Queue[W, O, S any] struct {
	seed  maphash.Seed
	parts [parts]part[W, O, S]
}

// part has the slots of some names. Callers of different names rarely wait for its lock.
type part[W, O, S any] struct {
	mu    sync.Mutex
	slots map[string]*Slot[W, O, S]
	_     [48]byte // the next one is in another cache line
}

const (
	parts = 16
	// keptSlots is the number of slots up to which a part keeps an unused slot.
	keptSlots = 64
)

// Slot is the right to compete for one name. It belongs to its occupant until Leave.
type Slot[W, O, S any] struct {
	// State belongs to the occupant, which finds what its predecessor left, or the
	// zero value if the slot was not kept.
	State S

	part        *part[W, O, S]
	name        string
	view        View[O]
	notice      *Notice[O]       // of the callers that watch; nil if none does
	first, last *Ticket[W, O, S] // of the waiters, in order of arrival; each can leave in constant time
	waiting     atomic.Int32     // how many
}

// View is what others know of a slot. It is a copy: the occupant may be gone when it is read.
type View[O any] struct {
	Occupied bool
	Turn     uint64 // counts the occupants
	Occupant O
	Previous *O // the last occupant before that was remembered since the slot was free; may be nil
}

// Notice tells what happened next to an occupant.
type Notice[O any] struct {
	Done chan struct{} // closed by the next announcement
	Said View[O]       // what was announced; valid when Done is closed
}

// New returns a queue without slots.
func New[W, O, S any]() *Queue[W, O, S] {
	q := &Queue[W, O, S]{seed: maphash.MakeSeed()}
	for i := range q.parts {
		q.parts[i].slots = make(map[string]*Slot[W, O, S])
	}
	return q
}

func (q *Queue[W, O, S]) part(name string) *part[W, O, S] {
	return &q.parts[maphash.String(q.seed, name)%parts]
}

// TryEnter occupies the slot of name if it is free. It returns the slot in any case.
func (q *Queue[W, O, S]) TryEnter(name string, o O) (slot *Slot[W, O, S], entered bool) {
	p := q.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slotLocked(name)
	if s.view.Occupied {
		return s, false
	}
	s.occupyLocked(o)
	return s, true
}

// View returns what is known of the slot.
func (s *Slot[W, O, S]) View() View[O] {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	return s.view
}

// Wait takes a place in the queue of the slot of name, with a prepared waiter. If the slot is free, the caller
// occupies it.
func (q *Queue[W, O, S]) Wait(name string, o O, prepare func(*W)) *Ticket[W, O, S] {
	p := q.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slotLocked(name)
	t := &Ticket[W, O, S]{slot: s, occupant: o, admitted: make(chan struct{})}
	prepare(&t.Waiter)
	if s.view.Occupied {
		s.addLocked(t)
		return t
	}
	s.occupyLocked(o)
	close(t.admitted)
	return t
}

// Ticket is a caller's place in the queue of a slot.
type Ticket[W, O, S any] struct {
	Waiter     W // the caller's own again when it does not wait any more
	slot       *Slot[W, O, S]
	occupant   O // what is known of the caller when it occupies the slot
	prev, next *Ticket[W, O, S]
	admitted   chan struct{}
	waits      bool
	served     bool
}

// Admitted is closed when the caller is the occupant of the slot, or was served.
func (t *Ticket[W, O, S]) Admitted() <-chan struct{} { return t.admitted }

// Slot returns the slot that an admitted caller occupies, or nil if it was served.
func (t *Ticket[W, O, S]) Slot() *Slot[W, O, S] {
	if t.served {
		return nil
	}
	return t.slot
}

// Leave gives the place up. It returns false if the caller was admitted before.
func (t *Ticket[W, O, S]) Leave() bool {
	s := t.slot
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	if !t.waits {
		return false
	}
	s.removeLocked(t)
	return true
}

func (p *part[W, O, S]) slotLocked(name string) *Slot[W, O, S] {
	s := p.slots[name]
	if s == nil {
		s = &Slot[W, O, S]{part: p, name: name}
		p.slots[name] = s
	}
	return s
}

func (s *Slot[W, O, S]) occupyLocked(o O) {
	s.view.Occupied, s.view.Occupant = true, o
	s.view.Turn++
}

// View returns what is known of the slot of name.
func (q *Queue[W, O, S]) View(name string) (v View[O]) {
	p := q.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.slots[name]; s != nil {
		v = s.view
	}
	return v
}

// UpdateFree changes the state that the next occupant of the slot of name finds. It does nothing if the slot
// has an occupant, or was not kept.
func (q *Queue[W, O, S]) UpdateFree(name string, change func(state *S)) {
	p := q.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.slots[name]; s != nil && !s.view.Occupied {
		change(&s.State)
	}
}

// Watch returns what is known of the slot, and the notice of the next announcement.
func (s *Slot[W, O, S]) Watch() (View[O], *Notice[O]) {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	if s.notice == nil {
		s.notice = &Notice[O]{Done: make(chan struct{})}
	}
	return s.view, s.notice
}

// Update changes what others know of the occupant, which calls it.
func (s *Slot[W, O, S]) Update(change func(o *O)) {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	change(&s.view.Occupant)
}

// Announce is Update, and wakes the callers that watch.
func (s *Slot[W, O, S]) Announce(change func(o *O)) {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	change(&s.view.Occupant)
	s.announceLocked()
}

func (s *Slot[W, O, S]) announceLocked() {
	if n := s.notice; n != nil {
		n.Said, s.notice = s.view, nil
		close(n.Done)
	}
}

// ForgetPrevious forgets which occupant was remembered.
func (s *Slot[W, O, S]) ForgetPrevious() {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	s.view.Previous = nil
}

// Waited reports whether a caller waits for the slot, or did a moment ago.
func (s *Slot[W, O, S]) Waited() bool { return s.waiting.Load() > 0 }

// Leave announces the occupant's end and admits the first waiter. The occupant must not use the slot
// any more. If remember is set, it is the previous occupant from then on.
func (s *Slot[W, O, S]) Leave(remember bool) {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	s.leaveLocked(remember)
}

// LeaveTo is Leave if there is a first waiter and it accepts. Otherwise it returns false, and the slot
// stays with its occupant.
func (s *Slot[W, O, S]) LeaveTo(remember bool, accepts func(next *W) bool) bool {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	t := s.first
	if t == nil || !accepts(&t.Waiter) {
		return false
	}
	s.leaveLocked(remember)
	return true
}

func (s *Slot[W, O, S]) leaveLocked(remember bool) {
	p := s.part
	s.announceLocked()
	if t := s.first; t != nil {
		if remember {
			last := s.view.Occupant
			s.view.Previous = &last
		}
		s.occupyLocked(t.occupant)
		s.removeLocked(t)
		close(t.admitted)
		return
	}
	var none O
	s.view.Occupied, s.view.Occupant, s.view.Previous = false, none, nil
	if len(p.slots) <= keptSlots {
		return
	}
	// A random other slot goes first if it is free: this one is likely to be used again.
	free := s
	for _, other := range p.slots { // in random order
		if !other.view.Occupied {
			free = other
		}
		break
	}
	delete(p.slots, free.name)
}

// Serve ends the waits of the first waiters of name, one after the other, for as long as they accept
// and at most limit: they need no slot any more. The occupant stays. Serve returns how many accepted.
func (q *Queue[W, O, S]) Serve(name string, limit int, accepts func(next *W) bool) (served int) {
	p := q.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slots[name]
	if s == nil {
		return 0
	}
	for t := s.first; t != nil && served < limit && accepts(&t.Waiter); t = s.first {
		s.removeLocked(t)
		t.served = true
		close(t.admitted)
		served++
	}
	return served
}

func (s *Slot[W, O, S]) addLocked(t *Ticket[W, O, S]) {
	t.waits, t.prev = true, s.last
	if s.last == nil {
		s.first = t
	} else {
		s.last.next = t
	}
	s.last = t
	s.waiting.Add(1)
}

func (s *Slot[W, O, S]) removeLocked(t *Ticket[W, O, S]) {
	if t.prev == nil {
		s.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		s.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.waits, t.prev, t.next = false, nil, nil
	s.waiting.Add(-1)
}
