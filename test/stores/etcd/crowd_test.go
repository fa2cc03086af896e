package etcd

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestFairCrowd: fair waiters of one process ask for nothing while they wait, and are served in the
// order of the queue for about a request each. An unrelated lock of the process stays.
func TestFairCrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	observer := newStore(t, server.URL())
	const ttl = 6 * time.Second
	crowd := newClient(t, server.URL(), ttl)
	held := lockAnyhow(t, newClient(t, server.URL(), ttl), "popular")
	unrelated := lockAnyhow(t, crowd, "unrelated")
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
	eventually(t, "all callers have places", func() bool { return waiters(observer, "popular") == callers })
	asked := func() float64 {
		return requests(t, server, "Txn") + requests(t, server, "Range") + requests(t, server, "DeleteRange")
	}
	before := asked()
	<-time.After(ttl * 5 / 12) // in which each would poll by itself
	if n := asked() - before; n > callers/4 {
		t.Errorf("%v requests of %d waiters while nothing happened", n, callers)
	}
	before = asked()
	unlock(t, held)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if n := asked() - before; n > callers*3/2 {
		t.Errorf("%v requests to serve %d waiters", n, callers)
	}
	if !slices.IsSorted(tokens) {
		t.Error("the waiters were not served in the order of the queue")
	}
	if err := unrelated.Context().Err(); err != nil {
		t.Errorf("the unrelated lock: %v", err)
	}
	unlock(t, unrelated)
}

// TestCrowdThatLostItsLease: fair waiters whose places ended with their lease take new ones, and share what
// they know of the queue as before.
func TestCrowdThatLostItsLease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	observer := newStore(t, server.URL())
	held := lockAnyhow(t, newClient(t, server.URL(), 20*time.Second), "popular")
	crowd := newClient(t, server.URL(), 30*time.Second) // another TTL, so another lease
	const callers = 200
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() {
			lease, err := crowd.Lock(t.Context(), "popular", dlock.WithFair())
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			errs[i] = err
		})
	}
	placed := func() bool { return waiters(observer, "popular") == callers }
	eventually(t, "all callers have places", placed)
	before := requests(t, server, "Txn")
	revokeLastOf(t, rawClient(t, server.URL()), "popular/")
	eventually(t, "all callers have places again", placed)
	unlock(t, held)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	// Each writes its key, and asks once more because of the deletions that it was notified of meanwhile.
	if n := requests(t, server, "Txn") - before; n > callers*11/4 {
		t.Errorf("%v transactions for %d waiters", n, callers)
	}
}
