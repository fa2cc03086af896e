// Package await waits in tests for what should happen, with a limit that a slow machine keeps.
package await

import (
	"testing"
	"time"
)

// Limit is how long an event may take that takes milliseconds on a machine that is not busy.
const Limit = time.Minute

const interval = 5 * time.Millisecond

// Until polls until a condition is true.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for deadline := time.Now().Add(Limit); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Limit, what)
		}
	}
}

// Event returns the next value of a channel, the zero value if the channel is closed.
func Event[T any](t testing.TB, event <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-event:
	case <-time.After(Limit):
		t.Fatalf("not within %v: %s", Limit, what)
	}
	return value
}
