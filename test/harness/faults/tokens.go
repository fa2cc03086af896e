package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// callLimit is how long a call of WatchTokens may take: a server that does not answer fails the test.
const callLimit = time.Minute

// WatchTokens acquires and releases names in some goroutines, each name again and again, and
// checks that every call succeeds and that the tokens of a name rise, until stop is called.
func WatchTokens(t testing.TB, store driver.Store, goroutines, names int, request func(name string) driver.Request) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	call := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		return f(ctx)
	}
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
				var grant driver.Grant
				if err := call(func(ctx context.Context) (err error) {
					grant, err = store.Acquire(ctx, request(name))
					return err
				}); err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if grant.Token <= last[name] {
					t.Errorf("%q got token %d after %d", name, grant.Token, last[name])
				}
				last[name] = grant.Token
				if err := call(func(ctx context.Context) error { return store.Release(ctx, grant) }); err != nil {
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
