package zookeeper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// faultTTL is the TTL and the session's timeout, long enough for a busy machine.
const faultTTL = 3 * time.Second

// rig runs faults on the store with that URL.
func rig(url string) faults.Rig {
	return faults.Rig{
		TTL:  faultTTL,
		Open: func(ctx context.Context) (driver.Store, error) { return zklock.Open(ctx, url, nil) },
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
	}
}

func faultURL(addr, order string) string {
	return fmt.Sprintf("zookeeper://%s/%s?order=%s&timeout=%s", addr, order, order, faultTTL)
}

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
		at := func(addr string) faults.Rig { return rig(faultURL(addr, order)) }
		r := at(server.Addr())
		r.Addr, r.At, r.RepeatsCalls = server.Addr(), at, true
		list := slices.Concat(faults.Leases, network(order))
		if order == "fair" {
			list = append(list, faults.Fair...)
		}
		both.Go(func() { t.Run(order, func(t *testing.T) { faults.Run(t, r, list) }) })
	}
	both.Wait()
}
