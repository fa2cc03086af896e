package dlock_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// punctual is a store whose connection notices a deadline before the context does.
type punctual struct{ driver.Store }

func (p punctual) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	at, _ := ctx.Deadline()
	for time.Now().Before(at) {
	}
	return driver.Grant{}, os.ErrDeadlineExceeded
}

func (p punctual) Traits() driver.Traits {
	t := p.Store.Traits()
	t.Local = false
	return t
}

// TestOwnDeadlineIsNotTheStores: when the caller's own time is up, the store is not to
// blame, whoever notices first.
func TestOwnDeadlineIsNotTheStores(t *testing.T) {
	c := dlock.New(punctual{memlock.New()}, nil)
	defer c.Close()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := c.Lock(ctx, "a")
		cancel()
		if errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lock with a deadline of its own: %v; want DeadlineExceeded alone", err)
		}
	}
}
