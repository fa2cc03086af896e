package dlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// slowFirst is a store whose first attempt takes a while.
type slowFirst struct {
	*memlock.Store
	attempts int
}

func (s *slowFirst) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.attempts++; s.attempts == 1 {
		time.Sleep(50 * time.Millisecond)
	}
	return s.Store.Acquire(ctx, req)
}

// TestLimitOfSharedCallersBehindAWriter: shared callers wait behind the first attempt of a shared one, and
// an exclusive waiter comes before them. Their limits count at least from when the exclusive one asks.
func TestLimitOfSharedCallersBehindAWriter(t *testing.T) {
	c := dlock.New(&slowFirst{Store: memlock.New()}, nil)
	defer c.Close()
	first := make(chan *dlock.Lease, 1)
	go func() {
		l, _ := c.Lock(t.Context(), "x", dlock.WithShared())
		first <- l
	}()
	time.Sleep(5 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = c.Lock(ctx, "x")
	}()
	time.Sleep(5 * time.Millisecond)
	var limited sync.WaitGroup
	for range 2000 {
		limited.Go(func() {
			lease, err := c.Lock(t.Context(), "x", dlock.WithShared(), dlock.WithWait(100*time.Millisecond))
			if err == nil {
				mustUnlock(t, lease)
			}
		})
	}
	ended := make(chan struct{})
	go func() { limited.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("callers with a limit of 100 ms wait for as long as the exclusive one does")
	}
	cancel()
	<-ended
	<-wrote
	if reader := <-first; reader != nil {
		mustUnlock(t, reader)
	}
}

// TestLimitOfSharedCallersThatAskOneAfterTheOther: only the first attempt of the caller in front is shared.
func TestLimitOfSharedCallersThatAskOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(newDistant(inner), nil)
		defer c.Close()
		var all sync.WaitGroup
		var mu sync.Mutex
		longest := time.Duration(0)
		for range 200 {
			all.Go(func() {
				began := time.Now()
				lease, err := c.Lock(t.Context(), "x", dlock.WithShared(), dlock.WithFixedTTL(time.Minute), dlock.WithWait(50*time.Millisecond))
				mu.Lock()
				longest = max(longest, time.Since(began))
				mu.Unlock()
				if err == nil {
					mustUnlock(t, lease)
				}
			})
		}
		all.Wait()
		if longest > 200*time.Millisecond {
			t.Errorf("a limit of 50 ms ended after %v", longest)
		}
		time.Sleep(time.Minute)
	})
}
