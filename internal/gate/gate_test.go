package gate

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
		g := New[int, int]()
		door, _ := g.TryEnter("a", new(int))
		var order []int
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				d, err := g.Enter(t.Context(), "a", new(int))
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // guarded by the door itself
				d.Leave()
			})
			synctest.Wait() // i is in the queue before i+1 comes
		}
		door.Leave()
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("admitted in the order %v", order)
			}
		}
		if g.Busy() != 0 {
			t.Errorf("%d doors are busy after everybody went", g.Busy())
		}
	})
}

func TestNamesDoNotWaitForEachOther(t *testing.T) {
	g := New[int, int]()
	if _, err := g.Enter(t.Context(), "a", new(int)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Enter(t.Context(), "a/b", new(int)); err != nil {
		t.Fatal(err)
	}
}

func TestTryEnterSaysWhoIsInside(t *testing.T) {
	g := New[int, int]()
	who := 7
	door, _ := g.TryEnter("a", &who)
	if again, inside := g.TryEnter("a", new(int)); again != nil || inside != &who {
		t.Errorf("TryEnter = %v, %v; want no door and who is inside", again, inside)
	}
	door.Leave()
	if again, _ := g.TryEnter("a", new(int)); again == nil {
		t.Error("TryEnter found the door shut after Leave")
	}
}

func TestCancelledWaiterLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int, int]()
		door, _ := g.TryEnter("a", new(int))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := g.Enter(ctx, "a", new(int)); failed <- err }()
		admitted := make(chan *Door[int, int], 1)
		go func() { d, _ := g.Enter(t.Context(), "a", new(int)); admitted <- d }()
		synctest.Wait()
		cancel(cause)
		if err := <-failed; !errors.Is(err, cause) {
			t.Errorf("Enter = %v; want the context's cause", err)
		}
		if n := g.Waiting("a"); n != 1 {
			t.Errorf("%d wait after one of two gave up", n)
		}
		door.Leave()
		(<-admitted).Leave()
		if g.Busy() != 0 {
			t.Errorf("%d doors are busy", g.Busy())
		}
	})
}

// A waiter that is cancelled in the moment it is admitted passes the door on.
func TestCancelRacingWithAdmission(t *testing.T) {
	g := New[int, int]()
	inside := 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(50))*time.Microsecond)
				if d, err := g.Enter(ctx, "a", new(int)); err == nil {
					if inside++; inside != 1 {
						t.Errorf("%d inside at once", inside)
					}
					inside--
					d.Leave()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if g.Busy() != 0 {
		t.Errorf("%d doors are busy", g.Busy())
	}
}

// Names that nobody uses any more cost no memory, however many there were.
func TestUnusedDoorsAreForgotten(t *testing.T) {
	g := New[int, int]()
	var inside []*Door[int, int]
	for i := range 10_000 {
		door, _ := g.TryEnter(fmt.Sprint(i), new(int))
		inside = append(inside, door)
	}
	for _, door := range inside[1:] {
		door.Leave()
	}
	for i := range 100_000 {
		door, _ := g.TryEnter(fmt.Sprint("again ", i), new(int))
		door.Leave()
	}
	if n := len(g.doors); n > keep {
		t.Errorf("%d doors are remembered", n)
	}
	if again, _ := g.TryEnter("0", new(int)); again != nil {
		t.Error("a door with somebody inside was forgotten")
	}
	inside[0].Leave()
}

func TestStateIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int, int]()
		door, _ := g.TryEnter("a", new(int))
		admitted := make(chan *Door[int, int])
		go func() { d, _ := g.Enter(t.Context(), "a", new(int)); admitted <- d }()
		synctest.Wait()
		door.State = 7
		door.Leave()
		door = <-admitted
		if door.State != 7 {
			t.Errorf("the next one found %d", door.State)
		}
		door.Leave()
		if door, _ = g.TryEnter("a", new(int)); door.State != 7 {
			t.Errorf("the one after that found %d", door.State)
		}
		door.Leave()
	})
}

func TestHandOnlyToTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int, int]()
		door, _ := g.TryEnter("a", new(int))
		if door.Next() != nil {
			t.Error("somebody waits at a door that nobody came to")
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := new(int), new(int)
		left := make(chan error, 1)
		go func() { _, err := g.Enter(ctx, "a", first); left <- err }()
		synctest.Wait()
		admitted := make(chan *Door[int, int], 1)
		go func() { d, _ := g.Enter(t.Context(), "a", second); admitted <- d }()
		synctest.Wait()
		if door.Next() != first {
			t.Error("the next one is not who came first")
		}
		if door.Hand(second) {
			t.Error("handed to who is not the next one")
		}
		cancel()
		<-left
		if door.Hand(first) {
			t.Error("handed to who has left")
		}
		if !door.Hand(second) {
			t.Error("not handed to the next one")
		}
		(<-admitted).Leave()
		if g.Busy() != 0 {
			t.Errorf("%d doors are busy", g.Busy())
		}
	})
}

// leaving is a context that ends in the moment in which the door is left.
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

// A waiter that is admitted in the moment in which its context ends is inside, and nobody
// waits for a door that nobody is inside of.
func TestAdmittedWhenTheContextEnds(t *testing.T) {
	g := New[int, int]()
	for range 100 { // which of the two the waiter notices is a matter of luck
		first, _ := g.TryEnter("a", new(int))
		who := new(int)
		d, err := g.Enter(leaving{t.Context(), first.Leave}, "a", who)
		if err != nil {
			t.Fatalf("Enter of a waiter that was admitted: %v", err)
		}
		if _, inside := g.TryEnter("a", new(int)); inside != who {
			t.Fatal("the waiter that was admitted is not inside")
		}
		d.Leave()
	}
	if n := g.Busy(); n != 0 {
		t.Errorf("%d doors are busy", n)
	}
}
