package workerpool_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/internal/workerpool"
)

// TestAllRunAtOnce: no task waits for another one.
func TestAllRunAtOnce(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		p := workerpool.New(2)
		defer p.Close()
		for range 3 {
			var here sync.WaitGroup
			here.Add(10)
			for range 10 {
				p.Go(func() {
					here.Done()
					here.Wait()
				})
			}
			here.Wait()
			synctest.Wait()
		}
	})
}

// workers counts the goroutines of all pools. To count all goroutines of the process
// would count those of the runtime, too.
func workers() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("workerpool.(*Pool).work("))
}

func TestFewStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := workerpool.New(2)
		release := make(chan struct{})
		for range 10 {
			p.Go(func() { <-release })
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := workers(); n != 2 {
			t.Errorf("%d stayed; want 2", n)
		}
		p.Go(func() {})
		synctest.Wait()
		if n := workers(); n != 2 {
			t.Errorf("%d stayed after one more task; want 2", n)
		}
		p.Close()
		synctest.Wait()
		if n := workers(); n != 0 {
			t.Errorf("%d stayed after Close", n)
		}
	})
}
