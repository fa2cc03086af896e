package zookeeper

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is the TTL and the session's timeout, long enough for a busy machine.
const faultTTL = 3 * time.Second

// network returns the network faults that apply to an order. With the order Fair a waiter
// gets the lock without a request, so that no answer can be lost.
func network(order string) []faults.Fault {
	return slices.DeleteFunc(slices.Clone(faults.Network), func(f faults.Fault) bool {
		return order == "fair" && f.Name == "a lost answer to an acquisition after a wait"
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	var both sync.WaitGroup
	for _, order := range []string{"fair", "unfair"} {
		s := bundle.Store{
			URL:          fmt.Sprintf("%s/%s?order=%s&timeout=%s", server.URL(), order, order, faultTTL),
			Open:         openURL,
			TTL:          faultTTL,
			Server:       server,
			RepeatsCalls: true,
		}
		list := slices.Concat(faults.Leases, network(order))
		if order == "fair" {
			list = append(list, faults.Fair...)
		}
		both.Go(func() { t.Run(order, func(t *testing.T) { faults.Run(t, s, list) }) })
	}
	both.Wait()
}
