package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// turnLimit is how long a turn of WatchTokens may take: a server that does not answer fails the test.
const turnLimit = time.Minute

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
				token, err := acquireAndRelease(store, request(name))
				if err != nil {
					t.Error(err)
					return
				}
				if token <= last[name] {
					t.Errorf("%q got token %d after %d", name, token, last[name])
				}
				last[name] = token
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		work.Wait()
	})
}

func acquireAndRelease(store driver.Store, req driver.Request) (token uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), turnLimit)
	defer cancel()
	grant, err := store.Acquire(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("acquire: %w", err)
	}
	if err := store.Release(ctx, grant); err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	return grant.Token, nil
}
