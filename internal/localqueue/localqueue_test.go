package localqueue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The queues of these tests know of a waiter and of an occupant a number.
type (
	queue = Queue[int, int, int]
	slot  = Slot[int, int, int]
)

func newQueue() *queue { return New[int, int, int]() }

// wait takes a place for n.
func wait(q *queue, name string, n int) *Ticket[int, int, int] {
	return q.Wait(name, n, func(w *int) { *w = n })
}

// isAdmitted reports whether the caller waits no more.
func isAdmitted(t *Ticket[int, int, int]) bool {
	select {
	case <-t.Admitted():
		return true
	default:
		return false
	}
}

// busy counts the occupied slots.
func busy(q *queue) (n int) {
	for i := range q.parts {
		p := &q.parts[i]
		p.mu.Lock()
		for _, s := range p.slots {
			if s.view.Occupied {
				n++
			}
		}
		p.mu.Unlock()
	}
	return n
}

// kept counts the slots.
func kept(q *queue) (n int) {
	for i := range q.parts {
		n += len(q.parts[i].slots)
	}
	return n
}

func always(*int) bool { return true }

func is(want int) func(*int) bool { return func(next *int) bool { return *next == want } }

func TestFirstComeFirstServed(t *testing.T) {
	q := newQueue()
	slot, _ := q.TryEnter("a", -1)
	var places []*Ticket[int, int, int]
	for i := range 100 {
		places = append(places, wait(q, "a", i))
	}
	for i, place := range places {
		if isAdmitted(place) {
			t.Fatalf("waiter %d is admitted while another caller occupies the slot", i)
		}
		slot.Leave(false)
		if !isAdmitted(place) {
			t.Fatalf("waiter %d is not admitted after the one before it", i)
		}
		slot = place.Slot()
		if v := q.View("a"); !v.Occupied || v.Occupant != i {
			t.Errorf("the occupant is %d; want %d", v.Occupant, i)
		}
	}
	slot.Leave(false)
	if busy(q) != 0 {
		t.Errorf("%d slots are occupied after all callers left", busy(q))
	}
}

func TestNamesDoNotWaitForEachOther(t *testing.T) {
	q := newQueue()
	for _, name := range []string{"a", "a/b"} {
		if !isAdmitted(wait(q, name, 1)) {
			t.Errorf("the first caller of %q waits", name)
		}
	}
}

func TestTryEnterOnlyAFreeSlot(t *testing.T) {
	q := newQueue()
	slot, entered := q.TryEnter("a", 7)
	if !entered {
		t.Fatal("the first caller does not enter")
	}
	again, entered := q.TryEnter("a", 8)
	if v, _ := again.Watch(); entered || v.Occupant != 7 {
		t.Errorf("the second caller entered: %v, and finds occupant %d; want 7", entered, v.Occupant)
	}
	slot.Leave(false)
	if v, _ := slot.Watch(); v.Occupied {
		t.Error("the slot is occupied after Leave")
	}
	if _, entered := q.TryEnter("a", 8); !entered {
		t.Error("TryEnter failed after Leave")
	}
}

func TestWaiterThatLeft(t *testing.T) {
	q := newQueue()
	slot, _ := q.TryEnter("a", 0)
	first, second := wait(q, "a", 1), wait(q, "a", 2)
	if !first.Leave() || first.Leave() {
		t.Error("a waiter leaves once")
	}
	if !slot.Waited() {
		t.Error("no caller waits after one of two waiters left")
	}
	slot.Leave(false)
	if isAdmitted(first) || !isAdmitted(second) {
		t.Error("the waiter that left is admitted, not the one behind it")
	}
	if second.Leave() {
		t.Error("a waiter leaves after it was admitted")
	}
	if second.Slot().Waited() {
		t.Error("a caller waits")
	}
	second.Slot().Leave(false)
	if busy(q) != 0 {
		t.Errorf("%d slots are occupied", busy(q))
	}
}

// A waiter that gives up while it is admitted either leaves the queue or gets the slot.
func TestLeaveRacingWithAdmission(t *testing.T) {
	q := newQueue()
	inside := 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 2000 {
				place := wait(q, "a", i)
				select {
				case <-place.Admitted():
				case <-time.After(time.Duration(random.IntN(50)) * time.Microsecond):
					if place.Leave() {
						continue
					}
					<-place.Admitted()
				}
				if inside++; inside != 1 {
					t.Errorf("%d callers occupy the slot", inside)
				}
				inside--
				place.Slot().Leave(false)
			}
		})
	}
	wg.Wait()
	if busy(q) != 0 {
		t.Errorf("%d slots are occupied", busy(q))
	}
}

// Names that are not in use any more cost no memory, however many there were.
func TestUnusedSlotsAreForgotten(t *testing.T) {
	q := newQueue()
	var slots []*slot
	for i := range 10_000 {
		slot, _ := q.TryEnter(fmt.Sprint(i), 0)
		slots = append(slots, slot)
	}
	for _, slot := range slots[1:] {
		slot.Leave(false)
	}
	for i := range 100_000 {
		slot, _ := q.TryEnter(fmt.Sprint("again ", i), 0)
		slot.Leave(false)
	}
	if n := kept(q); n > parts*keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, parts*keptSlots)
	}
	if _, entered := q.TryEnter("0", 0); entered {
		t.Error("an occupied slot was forgotten")
	}
	slots[0].Leave(false)
}

// TestStateIsKeptAfterManyOtherNames: names that were used once do not keep the state of a name
// that is used again and again from being kept.
func TestStateIsKeptAfterManyOtherNames(t *testing.T) {
	q := newQueue()
	for i := range 10 * parts * keptSlots {
		slot, _ := q.TryEnter(fmt.Sprint(i), 0)
		slot.Leave(false)
	}
	times := 0
	for range 100 {
		slot, _ := q.TryEnter("again", 0)
		times += slot.State
		slot.State = 1
		slot.Leave(false)
	}
	if times < 80 {
		t.Errorf("the state was kept %d times of 100", times)
	}
	if n := kept(q); n > parts*keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, parts*keptSlots)
	}
}

func TestStateIsLeftToSuccessors(t *testing.T) {
	q := newQueue()
	slot, _ := q.TryEnter("a", 0)
	place := wait(q, "a", 1)
	slot.State = 7
	slot.Leave(false)
	if slot = place.Slot(); slot.State != 7 {
		t.Errorf("the waiter found state %d; want 7", slot.State)
	}
	slot.Leave(false)
	if slot, _ = q.TryEnter("a", 0); slot.State != 7 {
		t.Errorf("the caller after it found state %d; want 7", slot.State)
	}
	slot.Leave(false)
}

func TestLeaveToTheFirstWaiterOnly(t *testing.T) {
	q := newQueue()
	slot, _ := q.TryEnter("a", 0)
	if slot.LeaveTo(false, always) {
		t.Error("left to a waiter of an empty queue")
	}
	first, second := wait(q, "a", 1), wait(q, "a", 2)
	if slot.LeaveTo(false, is(2)) {
		t.Error("left to the second waiter")
	}
	first.Leave()
	if slot.LeaveTo(false, is(1)) {
		t.Error("left to a waiter that left")
	}
	if isAdmitted(second) || q.View("a").Occupant != 0 {
		t.Error("the occupant has changed although no waiter accepted")
	}
	if !slot.LeaveTo(false, is(2)) || !isAdmitted(second) {
		t.Error("not left to the first waiter")
	}
	second.Slot().Leave(false)
	if busy(q) != 0 {
		t.Errorf("%d slots are occupied", busy(q))
	}
}

// TestPreviousIsRemembered: the last occupant that was remembered is known until the slot is free.
func TestPreviousIsRemembered(t *testing.T) {
	q := newQueue()
	slot, _ := q.TryEnter("a", 0)
	for i := range 6 {
		wait(q, "a", i+1)
	}
	check := func(what string, want int) {
		t.Helper()
		got := -1
		if previous := q.View("a").Previous; previous != nil {
			got = *previous
		}
		if got != want {
			t.Errorf("%s: the previous occupant is %d; want %d", what, got, want)
		}
	}
	check("the first occupant", -1)
	slot.Leave(false)
	check("after an occupant that was not remembered", -1)
	slot.Leave(true)
	check("after an occupant that was remembered", 1)
	slot.Leave(false)
	check("after another that was not remembered", 1)
	if !slot.LeaveTo(true, is(4)) {
		t.Error("LeaveTo the first waiter fails")
	}
	check("after LeaveTo", 3)
	slot.ForgetPrevious()
	check("forgotten", -1)
	slot.Leave(true)
	slot.Leave(true)
	check("the last occupant", 5)
	slot.Leave(true)
	check("the slot is free", -1)
}

// Waiters that are served leave the queue without the slot, in order, until one does not accept. The
// occupant and the other waiters stay.
func TestServedWaitersHaveNoSlot(t *testing.T) {
	q := newQueue()
	if q.Serve("a", 9, always) != 0 {
		t.Error("served a waiter of an unused name")
	}
	slot, _ := q.TryEnter("a", 0)
	if q.Serve("a", 9, always) != 0 {
		t.Error("served a waiter of an empty queue")
	}
	var places []*Ticket[int, int, int]
	for i := range 6 {
		places = append(places, wait(q, "a", i+1))
	}
	if n := q.Serve("a", 9, is(2)); n != 0 {
		t.Errorf("served %d waiters behind one that does not accept", n)
	}
	if n := q.Serve("a", 2, always); n != 2 {
		t.Errorf("served %d waiters; want 2", n)
	}
	if n := q.Serve("a", 9, func(next *int) bool { return *next < 5 }); n != 2 {
		t.Errorf("served %d waiters; want 2", n)
	}
	for i, place := range places {
		served := i < 4
		if isAdmitted(place) != served || served && (place.Slot() != nil || place.Leave()) {
			t.Errorf("waiter %d: admitted %v; want %v, without a slot", i+1, isAdmitted(place), served)
		}
	}
	if v := q.View("a"); v.Occupant != 0 || v.Turn != 1 {
		t.Errorf("the occupant is %d, in turn %d; want the first one", v.Occupant, v.Turn)
	}
	for _, next := range places[4:] {
		slot.Leave(false)
		slot = next.Slot()
	}
	slot.Leave(false)
	if busy(q) != 0 {
		t.Errorf("%d slots are occupied", busy(q))
	}
}

// TestNoticesSayWhatWasAnnounced: an announcement carries a copy, for the occupant may be gone when it is
// read. Update announces nothing. Leave announces how the occupant ended.
func TestNoticesSayWhatWasAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		slot, _ := q.TryEnter("a", 1)
		set := func(n int) func(*int) { return func(o *int) { *o = n } }
		announced := func(n *Notice[int]) bool {
			select {
			case <-n.Done:
				return true
			default:
				return false
			}
		}
		_, first := slot.Watch()
		slot.Update(set(2))
		if v, again := slot.Watch(); v.Occupant != 2 || again != first || announced(first) {
			t.Errorf("after Update the occupant is %d, announced: %v", v.Occupant, announced(first))
		}
		slot.Announce(set(3))
		slot.Update(set(4))
		if !announced(first) || first.Said.Occupant != 3 || first.Said.Turn != 1 {
			t.Errorf("announced: %v, %+v; want occupant 3 in turn 1", announced(first), first.Said)
		}
		_, second := slot.Watch()
		place := wait(q, "a", 9)
		slot.Leave(false)
		if !announced(second) || second.Said.Occupant != 4 {
			t.Errorf("announced: %v, %+v; want occupant 4", announced(second), second.Said)
		}
		if v, third := place.Slot().Watch(); v.Occupant != 9 || v.Turn != 2 || announced(third) {
			t.Errorf("the next occupant is %d in turn %d, announced: %v", v.Occupant, v.Turn, announced(third))
		}
		place.Slot().Leave(false)
	})
}
