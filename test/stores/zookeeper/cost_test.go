package zookeeper

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestRenewalReadsNodeOnNewConnection: on a new connection the first renewal reads the holder's
// node instead of relying on the restored watch.
func TestRenewalReadsNodeOnNewConnection(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	network := proxy.Run(t, server.Addr())
	store := open(t, "zookeeper://"+network.Addr())
	grant := want.Acquire(t, store, request("x"))
	renew := func() { // again while there is no connection
		t.Helper()
		await.Until(t, "the lock is renewed", func() bool { return store.Renew(t.Context(), []driver.Grant{grant}) == nil })
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
	await.Until(t, "a renewal reads the node", func() bool {
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
	want.OK(t, open(t, server.URL()).Break(t.Context(), "x", grant.Token))
	network.Hang(false)
	network.Reset()
	await.Until(t, "the holder learns that its lock was broken", func() bool {
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

// TestFairCrowd: fair waiters of one process ask for nothing while they wait, and are served in the
// order of the queue for three requests each, none of which reads the queue. An unrelated lock of the
// process stays.
func TestFairCrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	network := proxy.Run(t, server.Addr())
	var requests, reads atomic.Int64
	network.OnRequest(func(sent []byte) bool {
		for op, n := range map[uint32]*atomic.Int64{
			opExists: &requests, opGetData: &requests, opSync: &requests, opMulti: &requests, opChildren: &reads,
		} {
			matches(op, func([]byte) bool { n.Add(1); return false })(sent)
		}
		return false
	}, nil)
	observer := client(t, open(t, server.URL()), nil)
	const ttl = 6 * time.Second
	crowd := client(t, open(t, "zookeeper://"+network.Addr()), &dlock.Options{TTL: ttl})
	held := want.Value(observer.Lock(t.Context(), "popular"))(t)
	unrelated := want.Value(crowd.Lock(t.Context(), "unrelated"))(t)
	const callers = 200
	got := want.Crowd(t, crowd, "popular", callers)
	await.Until(t, "all callers have places", func() bool {
		info, _, err := observer.Find(t.Context(), "popular")
		return err == nil && info.Waiters == callers
	})
	before := requests.Load() + reads.Load()
	<-time.After(ttl * 5 / 12)                                     // in which each would poll by itself
	if n := requests.Load() + reads.Load() - before; n > callers { // the last ones have just begun to watch
		t.Errorf("%d requests of %d waiters while nothing happened", n, callers)
	}
	requests.Store(0)
	reads.Store(0)
	want.Unlock(t, held)
	want.ServedAll(t, got, callers)
	if n := requests.Load(); n > callers*7/2 {
		t.Errorf("%d requests to serve %d waiters", n, callers)
	}
	if n := reads.Load(); n > callers/20 {
		t.Errorf("%d times the queue was read to serve %d waiters", n, callers)
	}
	if err := unrelated.Context().Err(); err != nil {
		t.Errorf("the unrelated lock: %v", err)
	}
	want.Unlock(t, unrelated)
}
