package crew_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/internal/crew"
)

// TestAllRunAtOnce: nobody waits for another's task.
func TestAllRunAtOnce(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		c := crew.New(2)
		defer c.Dismiss()
		for range 3 {
			var here sync.WaitGroup
			here.Add(10)
			for range 10 {
				c.Go(func() {
					here.Done()
					here.Wait()
				})
			}
			here.Wait()
			synctest.Wait()
		}
	})
}

// workers counts the goroutines of all crews. To count all goroutines of the process
// would count those of the runtime, too.
func workers() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("crew.(*Crew).work("))
}

func TestFewStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew.New(2)
		release := make(chan struct{})
		for range 10 {
			c.Go(func() { <-release })
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := workers(); n != 2 {
			t.Errorf("%d stayed; want 2", n)
		}
		c.Go(func() {})
		synctest.Wait()
		if n := workers(); n != 2 {
			t.Errorf("%d stayed after one more task; want 2", n)
		}
		c.Dismiss()
		synctest.Wait()
		if n := workers(); n != 0 {
			t.Errorf("%d stayed after they were dismissed", n)
		}
	})
}
