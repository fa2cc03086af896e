package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watch calls Watch, and returns a channel of the wake-ups.
func watch(t *testing.T, store driver.Store, req driver.Request) (woken <-chan struct{}, stop func()) {
	t.Helper()
	wakes := make(chan struct{}, 1)
	stop, err := store.(driver.Watcher).Watch(t.Context(), req, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatalf("Watch %q: %v", req.Name, err)
	}
	return wakes, stop
}

// TestEndedWaitsLeaveNoSubscriptions: not even while messages arrive all the time.
func TestEndedWaitsLeaveNoSubscriptions(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	_, stop := watch(t, store, driver.Request{Name: "hot", Owner: driver.NewOwner()})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			raw.Publish(ctx, "redisson_lock__channel:{hot}", "0") // fails when the test ends
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	for i := range 200 {
		_, fair := watch(t, store, driver.Request{Name: "hot", Owner: driver.NewOwner(), Fair: true, Queue: true})
		fair()
		_, other := watch(t, store, driver.Request{Name: fmt.Sprintf("other-%d", i), Owner: driver.NewOwner()})
		other()
	}
	eventually(t, "only the wait that goes on is subscribed", func() bool { return subscriptions(t, raw, "*") == 1 })
}
