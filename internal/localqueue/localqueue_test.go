package localqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		var order []int
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				d, err := q.Enter(t.Context(), "a", new(int))
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // guarded by the slot
				d.Leave(false)
			})
			synctest.Wait() // i is in the queue before i+1 comes
		}
		slot.Leave(false)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("admitted in the order %v", order)
			}
		}
		if busy(q) != 0 {
			t.Errorf("%d slots are occupied after all callers left", busy(q))
		}
	})
}

func TestNamesDoNotWaitForEachOther(t *testing.T) {
	q := New[int, int]()
	if _, err := q.Enter(t.Context(), "a", new(int)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enter(t.Context(), "a/b", new(int)); err != nil {
		t.Fatal(err)
	}
}

func TestTryEnterReturnsTheOccupant(t *testing.T) {
	q := New[int, int]()
	caller := 7
	slot, _ := q.TryEnter("a", &caller)
	if again, occupant := q.TryEnter("a", new(int)); again != nil || occupant != &caller {
		t.Errorf("TryEnter = %v, %v; want no slot and the occupant", again, occupant)
	}
	slot.Leave(false)
	if again, _ := q.TryEnter("a", new(int)); again == nil {
		t.Error("TryEnter failed after Leave")
	}
}

func TestCancelledWaiterLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := q.Enter(ctx, "a", new(int)); failed <- err }()
		admitted := make(chan *Slot[int, int], 1)
		go func() { d, _ := q.Enter(t.Context(), "a", new(int)); admitted <- d }()
		synctest.Wait()
		cancel(cause)
		if err := <-failed; !errors.Is(err, cause) {
			t.Errorf("Enter = %v; want the context's cause", err)
		}
		if n := waiting(q, "a"); n != 1 {
			t.Errorf("%d waiters after one of two gave up", n)
		}
		slot.Leave(false)
		(<-admitted).Leave(false)
		if busy(q) != 0 {
			t.Errorf("%d slots are occupied", busy(q))
		}
	})
}

// A waiter whose context ends while it is admitted either leaves the queue or gets the slot.
func TestCancelRacingWithAdmission(t *testing.T) {
	q := New[int, int]()
	inside := 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(50))*time.Microsecond)
				if d, err := q.Enter(ctx, "a", new(int)); err == nil {
					if inside++; inside != 1 {
						t.Errorf("%d callers occupy the slot", inside)
					}
					inside--
					d.Leave(false)
				}
				cancel()
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
	q := New[int, int]()
	var slots []*Slot[int, int]
	for i := range 10_000 {
		slot, _ := q.TryEnter(fmt.Sprint(i), new(int))
		slots = append(slots, slot)
	}
	for _, slot := range slots[1:] {
		slot.Leave(false)
	}
	for i := range 100_000 {
		slot, _ := q.TryEnter(fmt.Sprint("again ", i), new(int))
		slot.Leave(false)
	}
	if n := len(q.slots); n > keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, keptSlots)
	}
	if again, _ := q.TryEnter("0", new(int)); again != nil {
		t.Error("an occupied slot was forgotten")
	}
	slots[0].Leave(false)
}

func TestStateIsLeftToSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		admitted := make(chan *Slot[int, int])
		go func() { d, _ := q.Enter(t.Context(), "a", new(int)); admitted <- d }()
		synctest.Wait()
		slot.State = 7
		slot.Leave(false)
		slot = <-admitted
		if slot.State != 7 {
			t.Errorf("the waiter found state %d; want 7", slot.State)
		}
		slot.Leave(false)
		if slot, _ = q.TryEnter("a", new(int)); slot.State != 7 {
			t.Errorf("the caller after it found state %d; want 7", slot.State)
		}
		slot.Leave(false)
	})
}

func TestHandOverOnlyToTheFirstWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		is := func(want *int) func(*int) bool { return func(next *int) bool { return next == want } }
		if slot.HandOver(is(nil)) {
			t.Error("handed over to a waiter of an empty queue")
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := new(int), new(int)
		left := make(chan error, 1)
		go func() { _, err := q.Enter(ctx, "a", first); left <- err }()
		synctest.Wait()
		admitted := make(chan *Slot[int, int], 1)
		go func() { d, _ := q.Enter(t.Context(), "a", second); admitted <- d }()
		synctest.Wait()
		if slot.HandOver(is(second)) {
			t.Error("handed over to the second waiter")
		}
		cancel()
		<-left
		if slot.HandOver(is(first)) {
			t.Error("handed over to a waiter that left")
		}
		if !slot.HandOver(is(second)) {
			t.Error("not handed over to the first waiter")
		}
		(<-admitted).Leave(false)
		if busy(q) != 0 {
			t.Errorf("%d slots are occupied", busy(q))
		}
	})
}

// leaving is a context that ends at the moment at which the occupant leaves.
type leaving struct {
	context.Context
	leave func()
}

func (l leaving) Done() <-chan struct{} {
	l.leave()
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (l leaving) Err() error { return context.Canceled }

// A waiter that is admitted at the moment at which its context ends is the occupant.
func TestAdmittedWhenTheContextEnds(t *testing.T) {
	q := New[int, int]()
	for range 100 { // the waiter notices one of the two at random
		first, _ := q.TryEnter("a", new(int))
		caller := new(int)
		d, err := q.Enter(leaving{t.Context(), func() { first.Leave(false) }}, "a", caller)
		if err != nil {
			t.Fatalf("Enter of an admitted waiter: %v", err)
		}
		if _, occupant := q.TryEnter("a", new(int)); occupant != caller {
			t.Fatal("the admitted waiter is not the occupant")
		}
		d.Leave(false)
	}
	if n := busy(q); n != 0 {
		t.Errorf("%d slots are occupied", n)
	}
}

// waiting counts the waiters for name.
func waiting(q *Queue[int, int], name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots[name].waiters.Len()
}

// busy counts the occupied slots.
func busy(q *Queue[int, int]) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, s := range q.slots {
		if s.occupant != nil {
			n++
		}
	}
	return n
}

// TestStateIsKeptAfterManyOtherNames: names that were used once do not keep the state of a name
// that is used again and again from being kept.
func TestStateIsKeptAfterManyOtherNames(t *testing.T) {
	q := New[int, int]()
	for i := range 10 * keptSlots {
		slot, _ := q.TryEnter(fmt.Sprint(i), new(int))
		slot.Leave(false)
	}
	kept := 0
	for range 100 {
		slot, _ := q.TryEnter("again", new(int))
		kept += slot.State
		slot.State = 1
		slot.Leave(false)
	}
	if kept < 80 {
		t.Errorf("the state was kept %d times of 100", kept)
	}
	if n := len(q.slots); n > keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, keptSlots)
	}
}

// TestPushBehind: a caller that wants to queue behind another one fails if a third one came between.
func TestPushBehind(t *testing.T) {
	q := New[int, struct{}]()
	first, second, third := new(int), new(int), new(int)
	if q.Push("x", first, third) != nil {
		t.Error("Push succeeds behind a caller that has gone")
	}
	ticket := q.Push("x", first, nil)
	if ticket == nil {
		t.Fatal("Push fails in a free slot")
	}
	slot, err := ticket.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ticket = q.Push("x", second, first); ticket == nil {
		t.Fatal("Push fails behind the last caller")
	}
	if callers := q.Callers("x"); callers.Occupant != first || callers.Last != second {
		t.Error("Callers does not return the occupant and the caller that came last")
	}
	for _, behind := range []*int{nil, first} {
		if q.Push("x", third, behind) != nil {
			t.Error("Push succeeds behind a caller that is not the last")
		}
	}
	slot.Leave(false)
	if slot, err = ticket.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	slot.Leave(false)
	for _, name := range []string{"x", "y"} {
		if callers := q.Callers(name); callers.Occupant != nil || callers.Last != nil {
			t.Errorf("Callers of the free slot %q returns callers", name)
		}
	}
}

// TestPreviousIsRemembered: the last occupant that was remembered is known until the slot is free.
func TestPreviousIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		callers := make([]int, 7)
		slot, _ := q.TryEnter("a", &callers[0])
		for i := range callers[1:] {
			go func() { _, _ = q.Enter(t.Context(), "a", &callers[i+1]) }()
			synctest.Wait()
		}
		check := func(what string, want *int) {
			t.Helper()
			if got := q.Callers("a").Previous; got != want {
				t.Errorf("%s: the previous occupant is %p; want %p", what, got, want)
			}
		}
		check("the first occupant", nil)
		slot.Leave(false)
		check("after an occupant that was not remembered", nil)
		slot.Leave(true)
		check("after an occupant that was remembered", &callers[1])
		slot.Leave(false)
		check("after another that was not remembered", &callers[1])
		if !slot.HandOver(func(next *int) bool { return next == &callers[4] }) {
			t.Error("HandOver to the first waiter fails")
		}
		check("after a hand-off", &callers[3])
		slot.ForgetPrevious()
		check("forgotten", nil)
		slot.Leave(true)
		slot.Leave(true)
		check("the last occupant", &callers[5])
		slot.Leave(true)
		check("the slot is free", nil)
	})
}

// A waiter that is served leaves the queue without the slot, also if its context ends at that
// moment. The occupant and the other waiters stay.
func TestServedWaiterHasNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		if q.Serve("a", func(*int) bool { return true }) {
			t.Error("served a waiter of an unused name")
		}
		occupant, first, second := new(int), new(int), new(int)
		slot, _ := q.TryEnter("a", occupant)
		if q.Serve("a", func(*int) bool { return true }) {
			t.Error("served a waiter of an empty queue")
		}
		ctx, cancel := context.WithCancel(t.Context())
		type result struct {
			slot *Slot[int, int]
			err  error
		}
		results := [2]chan result{make(chan result, 1), make(chan result, 1)}
		for i, caller := range []*int{first, second} {
			go func() {
				slot, err := q.Enter(ctx, "a", caller)
				results[i] <- result{slot, err}
			}()
			synctest.Wait()
		}
		if q.Serve("a", func(*int) bool { return false }) {
			t.Error("served a waiter that does not accept")
		}
		served := q.Serve("a", func(next *int) bool {
			cancel()
			return next == first
		})
		if got := <-results[0]; !served || got.slot != nil || got.err != nil {
			t.Errorf("served: %v, and Enter of the first waiter returned slot %p and %v", served, got.slot, got.err)
		}
		if got := <-results[1]; got.slot != nil || !errors.Is(got.err, context.Canceled) {
			t.Errorf("Enter of the second waiter returned slot %p and %v; want that its context has ended", got.slot, got.err)
		}
		if q.Callers("a").Occupant != occupant {
			t.Error("the occupant has changed")
		}
		slot.Leave(false)
		if busy(q) != 0 {
			t.Errorf("%d slots are occupied", busy(q))
		}
	})
}
