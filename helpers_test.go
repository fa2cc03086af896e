package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// bubble runs fn in virtual time with a store in memory, and fails if a goroutine or a lock
// is left behind.
func bubble(t *testing.T, fn func(t *testing.T, store *memlock.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		fn(t, store)
		for info := range store.List(context.Background(), "") {
			t.Errorf("left behind: %+v", info)
		}
	})
}

func mustLock(t *testing.T, c *dlock.Client, ctx context.Context, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// remote is a store that counts as one over a network, so that calls to it have time limits.
type remote struct{ *memlock.Store }

func (r remote) Traits() driver.Traits {
	traits := r.Store.Traits()
	traits.Local = false
	return traits
}
