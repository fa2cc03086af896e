package memcached

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestWaiterIsWokenWhenTheLockChangesHands: the store notices another holder, although it never
// finds the lock free. Package dlock then polls more often.
func TestWaiterIsWokenWhenTheLockChangesHands(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store := openNow(t, addr)
	take(t, store, "a")
	woken := make(chan struct{}, 1)
	stop, err := store.(driver.Watcher).Watch(t.Context(), driver.Request{Name: "a"}, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	eventually(t, "the waiter is woken", func() bool {
		if _, err := converse(t.Context(), addr, "set dlock:a 0 60 5\r\nother\r\n", "STORED"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
			return true
		default:
			return false
		}
	})
}
