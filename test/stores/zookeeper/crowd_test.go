package zookeeper

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

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
	held, err := observer.Lock(t.Context(), "popular")
	if err != nil {
		t.Fatal(err)
	}
	unrelated, err := crowd.Lock(t.Context(), "unrelated")
	if err != nil {
		t.Fatal(err)
	}
	const callers = 200
	var all sync.WaitGroup
	var mu sync.Mutex
	var tokens []uint64
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() {
			lease, err := crowd.Lock(t.Context(), "popular", dlock.WithFair())
			if err == nil {
				mu.Lock()
				tokens = append(tokens, lease.Token())
				mu.Unlock()
				err = lease.Unlock(t.Context())
			}
			errs[i] = err
		})
	}
	eventually(t, "all callers have places", func() bool {
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
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n > callers*7/2 {
		t.Errorf("%d requests to serve %d waiters", n, callers)
	}
	if n := reads.Load(); n > callers/20 {
		t.Errorf("%d times the queue was read to serve %d waiters", n, callers)
	}
	if !slices.IsSorted(tokens) {
		t.Error("the waiters were not served in the order of the queue")
	}
	if err := unrelated.Context().Err(); err != nil {
		t.Errorf("the unrelated lock: %v", err)
	}
	if err := unrelated.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
