package subscribers_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/subscribers"
)

// TestNoCallAfterStop: once Stop has returned, the function is not called, however many
// goroutines notify at that moment.
func TestNoCallAfterStop(t *testing.T) {
	for range 200 {
		var over bool // written after Stop: the race detector sees a late call, too
		s := subscribers.New(func() {
			if over {
				t.Error("called after Stop")
			}
		})
		var notifiers sync.WaitGroup
		for range 4 {
			notifiers.Go(func() {
				for range 10 {
					s.Notify()
				}
			})
		}
		s.Stop()
		over = true
		s.Stop()
		notifiers.Wait()
	}
}

func TestNotify(t *testing.T) {
	calls := 0
	s := subscribers.New(func() { calls++ })
	s.Notify()
	s.Notify()
	s.Stop()
	s.Notify()
	if calls != 2 {
		t.Errorf("called %d times; want 2", calls)
	}
}

func TestRegistry(t *testing.T) {
	var r subscribers.Registry[int]
	if names, changed := r.Names(); names != nil || changed {
		t.Errorf("an empty registry has the names %v, changed %v", names, changed)
	}
	r.Add("a", 1)
	r.Add("a", 2)
	r.Add("b", 3)
	names, changed := r.Names()
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "b"}) || !changed {
		t.Errorf("the names are %v, changed %v; want a and b, changed", names, changed)
	}
	if _, changed := r.Names(); changed {
		t.Error("the names changed although no subscriber came or went")
	}
	if got := r.Of("a"); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("a has %v; want 1 and 2", got)
	}
	if !r.Remove("a", 1) || r.Remove("a", 1) || r.Remove("c", 1) {
		t.Error("Remove does not report whether there was such a subscriber")
	}
	if _, changed := r.Names(); changed {
		t.Error("the names changed although a still has a subscriber")
	}
	r.Remove("a", 2)
	if names, changed := r.Names(); !slices.Equal(names, []string{"b"}) || !changed || r.Len() != 1 {
		t.Errorf("the names are %v, changed %v; want b, changed", names, changed)
	}
	r.Clear()
	if names, _ := r.Names(); len(names) != 0 || r.Len() != 0 || r.Of("b") != nil {
		t.Errorf("after Clear there is %v", names)
	}
}
