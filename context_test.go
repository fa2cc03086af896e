package dlock

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/memlock"
)

// endUnseen ends a hold as somebody does who is interrupted before the context is
// done.
func endUnseen(h *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(ErrLost)
}

// A context never says that a lock is held which somebody has already ended.
func TestErrDoesNotWaitForWhoeverEndsTheHold(t *testing.T) {
	c := New(memlock.New(), nil)
	defer c.Close()
	check := func(what string, ctx context.Context, h *hold) {
		t.Helper()
		if err := ctx.Err(); err != nil {
			t.Errorf("%s is done at once: %v", what, err)
		}
		endUnseen(h)
		if err := ctx.Err(); err == nil {
			t.Errorf("%s says that the lock is held", what)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLost) {
			t.Errorf("%s: cause %v", what, cause)
		}
	}
	lease, err := c.Lock(t.Context(), "lease")
	if err != nil {
		t.Fatal(err)
	}
	check("the context of a lease", lease.Context(), lease.hold)
	_ = c.Do(t.Context(), "do", func(ctx context.Context) error {
		check("the context of Do", ctx, c.innermost(ctx))
		return nil
	})
	leases, err := c.LockAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	check("the context of a set", leases.Context(), leases.leases[0].hold)
}
