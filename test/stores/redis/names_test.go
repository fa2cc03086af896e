package redis

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestBracedNameIsADistinctLock: a waiter for {a} does not block a.
func TestBracedNameIsADistinctLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	store, _ := openURL(t, server.URL())
	acquire(t, store, "{a}")
	waiter := requestFor("{a}")
	waiter.Fair, waiter.Queue = true, true
	if _, err := store.Acquire(t.Context(), waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("want ErrHeld, got: %v", err)
	}
	other := requestFor("a")
	other.Fair, other.Queue = true, true
	if _, err := store.Acquire(t.Context(), other); err != nil {
		t.Errorf("a is free: %v", err)
	}
}
