package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// WatchTokens acquires and releases names in some goroutines, each name again and again, and
// checks that every call succeeds and that the tokens of a name rise, until stop is called.
func WatchTokens(t testing.TB, store driver.Store, goroutines, names int, request func(name string) driver.Request) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var work sync.WaitGroup
	for i := range goroutines {
		work.Go(func() {
			last := make(map[string]uint64)
			for turn := 0; ; turn++ {
				select {
				case <-done:
					return
				default:
				}
				name := fmt.Sprintf("name/%d/%d", i, turn%names)
				grant, err := store.Acquire(context.Background(), request(name))
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if grant.Token <= last[name] {
					t.Errorf("%q got token %d after %d", name, grant.Token, last[name])
				}
				last[name] = grant.Token
				if err := store.Release(context.Background(), grant); err != nil {
					t.Errorf("Release: %v", err)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		work.Wait()
	})
}
