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
				d.Leave()
			})
			synctest.Wait() // i is in the queue before i+1 comes
		}
		slot.Leave()
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
	slot.Leave()
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
		slot.Leave()
		(<-admitted).Leave()
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
					d.Leave()
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
		slot.Leave()
	}
	for i := range 100_000 {
		slot, _ := q.TryEnter(fmt.Sprint("again ", i), new(int))
		slot.Leave()
	}
	if n := len(q.slots); n > keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, keptSlots)
	}
	if again, _ := q.TryEnter("0", new(int)); again != nil {
		t.Error("an occupied slot was forgotten")
	}
	slots[0].Leave()
}

func TestStateIsLeftToSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		admitted := make(chan *Slot[int, int])
		go func() { d, _ := q.Enter(t.Context(), "a", new(int)); admitted <- d }()
		synctest.Wait()
		slot.State = 7
		slot.Leave()
		slot = <-admitted
		if slot.State != 7 {
			t.Errorf("the waiter found state %d; want 7", slot.State)
		}
		slot.Leave()
		if slot, _ = q.TryEnter("a", new(int)); slot.State != 7 {
			t.Errorf("the caller after it found state %d; want 7", slot.State)
		}
		slot.Leave()
	})
}

func TestHandOffOnlyToTheFirstWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int, int]()
		slot, _ := q.TryEnter("a", new(int))
		if slot.Next() != nil {
			t.Error("Next returned a waiter of an empty queue")
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := new(int), new(int)
		left := make(chan error, 1)
		go func() { _, err := q.Enter(ctx, "a", first); left <- err }()
		synctest.Wait()
		admitted := make(chan *Slot[int, int], 1)
		go func() { d, _ := q.Enter(t.Context(), "a", second); admitted <- d }()
		synctest.Wait()
		if slot.Next() != first {
			t.Error("Next did not return the first waiter")
		}
		if slot.HandOff(second) {
			t.Error("handed off to the second waiter")
		}
		cancel()
		<-left
		if slot.HandOff(first) {
			t.Error("handed off to a waiter that left")
		}
		if !slot.HandOff(second) {
			t.Error("not handed off to the first waiter")
		}
		(<-admitted).Leave()
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
		d, err := q.Enter(leaving{t.Context(), first.Leave}, "a", caller)
		if err != nil {
			t.Fatalf("Enter of an admitted waiter: %v", err)
		}
		if _, occupant := q.TryEnter("a", new(int)); occupant != caller {
			t.Fatal("the admitted waiter is not the occupant")
		}
		d.Leave()
	}
	if n := busy(q); n != 0 {
		t.Errorf("%d slots are occupied", n)
	}
}

// waiting counts the waiters for name.
func waiting(q *Queue[int, int], name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for w := q.slots[name].first; w != nil; w = w.next {
		n++
	}
	return n
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
		slot.Leave()
	}
	kept := 0
	for range 100 {
		slot, _ := q.TryEnter("again", new(int))
		kept += slot.State
		slot.State = 1
		slot.Leave()
	}
	if kept < 80 {
		t.Errorf("the state was kept %d times of 100", kept)
	}
	if n := len(q.slots); n > keptSlots {
		t.Errorf("%d slots are kept; want at most %d", n, keptSlots)
	}
}
