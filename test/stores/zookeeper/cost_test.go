package zookeeper

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRenewalReadsNodeOnNewConnection: on a new connection the first renewal reads the holder's
// node instead of relying on the restored watch.
func TestRenewalReadsNodeOnNewConnection(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	network := proxy.Run(t, server.Addr())
	store := open(t, "zookeeper://"+network.Addr())
	grant := acquire(t, store, request("x"))
	renew := func() { // again while there is no connection
		t.Helper()
		eventually(t, "the lock is renewed", func() bool { return store.Renew(t.Context(), []driver.Grant{grant}) == nil })
	}
	renew()
	read := network.OnRequest(reads("/x/"), nil)
	renew()
	select {
	case <-read:
		t.Error("every renewal reads the node")
	default:
	}
	network.Reset()
	eventually(t, "a renewal reads the node", func() bool {
		renew()
		select {
		case <-read:
			return true
		default:
			return false
		}
	})

	// The lock is broken while there is no connection. No renewal succeeds after that.
	network.Hang(true)
	network.Reset()
	if err := open(t, server.URL()).Break(t.Context(), "x", grant.Token); err != nil {
		t.Fatal(err)
	}
	network.Hang(false)
	network.Reset()
	eventually(t, "the holder learns that its lock was broken", func() bool {
		errs := store.Renew(t.Context(), []driver.Grant{grant})
		if errs == nil {
			t.Fatal("a lock that was broken was renewed")
		}
		return errors.Is(errs[0], driver.ErrNotHeld)
	})
}

// TestContentionLeavesNoMemory: the store forgets nodes that it waited for, also those that were
// removed before it could watch them.
func TestContentionLeavesNoMemory(t *testing.T) { // not parallel: it counts the objects in memory
	server := servers.Run(t, servers.ZooKeeper)
	var clients []*dlock.Client
	for range 5 {
		clients = append(clients, client(t, open(t, server.URL()), nil))
	}
	contend := func(d time.Duration) (objects uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var work sync.WaitGroup
		for _, c := range clients {
			work.Go(func() {
				for ctx.Err() == nil {
					lease, err := c.Lock(t.Context(), "x")
					if err != nil {
						t.Error(err)
						return
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		runtime.GC()
		runtime.GC() // removes what the first run has finalized
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapObjects
	}
	before := contend(time.Second)
	after := contend(4 * time.Second)
	t.Logf("%d objects after a second, %d after four more", before, after)
	if after > before+1000 {
		t.Errorf("%d objects more than after the first second", after-before)
	}
}
