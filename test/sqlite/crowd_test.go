package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A crowd of fair waiters, each of whom writes, does not keep the locks of the
// same process from being renewed.
func TestFairCrowdDoesNotStarveRenewals(t *testing.T) {
	waiters, ttl := 3000, 3*time.Second
	if raceEnabled {
		waiters = 200
	}
	store, err := openFile(t.Context(), tempFile(t))
	if err != nil {
		t.Fatal(err)
	}
	c := dlock.New(store, nil)
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	var leases []*dlock.Lease
	for _, name := range []string{"wanted", "unrelated"} {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(ttl), dlock.WithFair())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
	defer cancel()
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			if _, err := c.Lock(ctx, "wanted", dlock.WithTTL(ttl), dlock.WithFair()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	wg.Wait()
	for _, lease := range leases {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("the lock %q was not kept: %v", lease.Name(), err)
		}
	}
}

// Thousands who wait for as many names need no more than a few connections.
func TestWaitersNeedFewConnections(t *testing.T) {
	path := tempFile(t)
	holder, err := openFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := openFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	h, w := dlock.New(holder, nil), dlock.New(waiting, nil)
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), w.Close(), holder.Close(), waiting.Close()); err != nil {
			t.Error(err)
		}
	})
	names := make([]string, 500)
	for i := range names {
		names[i] = string(rune('a'+i%26)) + "/" + time.Duration(i).String()
	}
	leases, err := h.LockAll(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			if _, err := w.Lock(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock(%q): %v", name, err)
			}
		})
	}
	most := 0
	for ctx.Err() == nil {
		most = max(most, waiting.(fileStore).db.Stats().OpenConnections)
		<-time.After(time.Millisecond)
	}
	wg.Wait()
	if most > 12 {
		t.Errorf("%d connections for %d waiters", most, len(names))
	}
	if err := leases.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
