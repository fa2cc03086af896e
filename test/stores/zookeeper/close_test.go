package zookeeper

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// TestCloseDuringCallsEnds checks that Close returns although calls are under way. A request that is sent
// while the client of ZooKeeper closes may block the client for good.
func TestCloseDuringCallsEnds(t *testing.T) {
	t.Parallel()
	url := servers.URL(t, servers.ZooKeeper) + "/close"
	for range 100 {
		store, err := zklock.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for i := range 6 {
			calls.Go(func() {
				for {
					req := driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner(), TTL: 20 * time.Second}
					grant, err := store.Acquire(t.Context(), req)
					if err != nil {
						return
					}
					_ = store.Release(t.Context(), grant)
				}
			})
		}
		_ = backoff.Sleep(t.Context(), rand.N(30*time.Millisecond))
		closed := make(chan error, 1)
		go func() { closed <- store.Close() }()
		if err := await.Event(t, closed, "Close returns"); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}
