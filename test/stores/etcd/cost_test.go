package etcd

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// metric returns the sum of a metric of the server over all labels that contain a text.
func metric(t testing.TB, server *servers.Server, name, label string) (sum float64) {
	t.Helper()
	reply := want.Value(http.Get("http://" + server.Addr() + "/metrics"))(t)
	defer reply.Body.Close()
	text := want.Value(io.ReadAll(reply.Body))(t)
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (series == name || strings.HasPrefix(series, name+"{")) && strings.Contains(series, label) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += n
		}
	}
	return sum
}

func requests(t testing.TB, server *servers.Server, method string) float64 {
	t.Helper()
	return metric(t, server, "grpc_server_started_total", `grpc_method="`+method+`"`)
}

// TestPairIsTwoRequests: a lock and its unlock are a transaction and a deletion, and now and then a
// message that renews the lease.
func TestPairIsTwoRequests(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	client := newClient(t, server.URL(), time.Minute)
	want.Unlock(t, lockAnyhow(t, client, "warm-up"))
	const pairs = 50
	start := time.Now()
	txns, deletes, kept := requests(t, server, "Txn"), requests(t, server, "DeleteRange"), requests(t, server, "LeaseKeepAlive")
	for i := range pairs {
		want.Unlock(t, lockAnyhow(t, client, fmt.Sprint("name ", i)))
	}
	if n, d := requests(t, server, "Txn")-txns, requests(t, server, "DeleteRange")-deletes; n != pairs || d != pairs {
		t.Errorf("%v transactions and %v deletions for %d pairs", n, d, pairs)
	}
	if n, most := requests(t, server, "LeaseKeepAlive")-kept, 1+time.Since(start).Seconds(); n > most {
		t.Errorf("%v renewals of the lease in %v", n, time.Since(start))
	}
	if n := requests(t, server, "LeaseGrant"); n != 1 {
		t.Errorf("%v leases for one client", n)
	}
}

// TestWaiterIsGrantedWithoutAsking: a waiter takes its place by one transaction. It has the lock when
// the watch has reported the deletion of all keys ahead, without asking the server.
func TestWaiterIsGrantedWithoutAsking(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	observer := newStore(t, server.URL())
	clients := []*dlock.Client{newClient(t, server.URL(), time.Minute), newClient(t, server.URL(), time.Minute)}
	lease := lockAnyhow(t, clients[0], "hot")
	const handovers = 40
	txns := requests(t, server, "Txn")
	for i := range handovers {
		next := lockLater(t, clients[(i+1)%2], "hot")
		await.Until(t, "the other client waits", func() bool { return waiters(observer, "hot") == 1 })
		want.Unlock(t, lease)
		lease = <-next
	}
	want.Unlock(t, lease)
	// A waiter that has just begun to watch asks once more.
	if n, most := requests(t, server, "Txn")-txns, float64(handovers+handovers/4); n > most {
		t.Errorf("%v transactions for %d hand-overs; want %v at most", n, handovers, most)
	}
}

// TestQueuedAttemptKeepsAPlace: if a lock has waiters, an attempt with Queue leaves a place, which
// ends with Release.
func TestQueuedAttemptKeepsAPlace(t *testing.T) {
	t.Parallel()
	store := newStore(t, servers.Run(t, servers.Etcd).URL())
	held := want.Acquire(t, store, request("x"))
	want.Watch(t, store, request("x"))
	next := request("x")
	next.Queue = true
	for range 2 {
		want.Held(t, store, next, "another has it")
	}
	if n := waiters(store, "x"); n != 1 {
		t.Errorf("%d wait; want 1", n)
	}
	want.Release(t, store, held)
	want.Held(t, store, request("x"), "a waiter has a place")
	want.Error(t, "giving up a place", store.Release(t.Context(), want.Undo(next)), driver.ErrNotHeld)
	want.Acquire(t, store, request("x"))
}

// TestOneMessageRenewsAllLocks: a renewal is one message and a transaction for every hundred locks.
func TestOneMessageRenewsAllLocks(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	store := newStore(t, server.URL())
	const locks = 1000
	grants := make([]driver.Grant, locks)
	var all sync.WaitGroup
	for worker := range 20 {
		all.Go(func() {
			for i := worker; i < locks; i += 20 {
				var err error
				if grants[i], err = store.Acquire(t.Context(), request(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	txns, kept := requests(t, server, "Txn"), requests(t, server, "LeaseKeepAlive")
	want.Renew(t, store, "of all", grants...)
	if n := requests(t, server, "Txn") - txns; n != locks/100 {
		t.Errorf("%v transactions to renew %d locks", n, locks)
	}
	if n := requests(t, server, "LeaseKeepAlive") - kept; n > 1 {
		t.Errorf("%v messages to renew one lease", n)
	}
	want.Release(t, store, grants[0])
	for i, err := range store.Renew(t.Context(), grants) {
		if (err != nil) != (i == 0) {
			t.Errorf("Renew of lock %d after the first was released: %v", i, err)
		}
	}
}

// TestWaitersShareOneKeyAndOneWatch: 10,000 waiters of one process for one name have one key and one
// watch, and send no requests while they wait.
func TestWaitersShareOneKeyAndOneWatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	lease := lockAnyhow(t, newClient(t, server.URL(), time.Minute), "popular")
	leave := want.Waiting(t, newClient(t, server.URL(), time.Minute), "popular", 10_000)
	count := func() int64 { return keys(t, raw, "popular") }
	await.Until(t, "the crowd has its place", func() bool { return count() == 2 })
	txns := requests(t, server, "Txn")
	<-time.After(2 * time.Second) // in which nothing must happen
	if n := count(); n != 2 {
		t.Errorf("%d keys for a holder and a crowd", n)
	}
	if n := requests(t, server, "Txn") - txns; n > 1 {
		t.Errorf("%v transactions while nothing happened", n)
	}
	if n := metric(t, server, "etcd_debugging_mvcc_watcher_total", ""); n != 1 {
		t.Errorf("%v watches", n)
	}
	leave()
	await.Until(t, "the place is given up", func() bool { return count() == 1 })
	want.Unlock(t, lease)
}

// TestShareIsTwoRequests: a share beside other holders costs what an exclusive lock costs.
func TestShareIsTwoRequests(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	a, b := newStore(t, server.URL()), newStore(t, server.URL())
	for name, mode := range map[string]driver.Mode{"shared": sharedMode, "permit": {Limit: 3}} {
		want.Acquire(t, a, requestIn(mode, name))
		const pairs = 20
		txns, deletes := requests(t, server, "Txn"), requests(t, server, "DeleteRange")
		for range pairs {
			req := requestIn(mode, name)
			req.Queue = true // as Lock asks
			want.Release(t, b, want.Acquire(t, b, req))
		}
		if n, d := requests(t, server, "Txn")-txns, requests(t, server, "DeleteRange")-deletes; n != pairs || d != pairs {
			t.Errorf("%v transactions and %v deletions for %d pairs in mode %v", n, d, pairs, mode)
		}
	}
}

// TestOnePermitWakesOneWaiter: of many waiters for a permit, only the next is woken when one is free,
// and it is granted without asking the server.
func TestOnePermitWakesOneWaiter(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	holder, store := newStore(t, server.URL()), newStore(t, server.URL())
	held := []driver.Grant{want.Acquire(t, holder, requestIn(two, "x")), want.Acquire(t, holder, requestIn(two, "x"))}
	const crowd = 6 // no more than a waiter remembers
	var reqs [crowd]driver.Request
	var wakes [crowd]atomic.Int64
	for i := range reqs {
		reqs[i] = requestIn(two, "x")
		stop := want.Value(store.Watch(t.Context(), reqs[i], func() { wakes[i].Add(1) }))(t)
		t.Cleanup(stop)
		want.Held(t, store, reqs[i], "both permits are taken")
	}
	var before [crowd]int64
	for i := range wakes {
		before[i] = wakes[i].Load()
	}
	txns := requests(t, server, "Txn")
	for next, grant := range held {
		want.Release(t, holder, grant)
		await.Until(t, "the next waiter is woken", func() bool { return wakes[next].Load() > before[next] })
		want.Acquire(t, store, reqs[next])
		for i := next + 1; i < crowd; i++ {
			if wakes[i].Load() != before[i] {
				t.Errorf("waiter %d was woken for a permit of waiter %d", i, next)
			}
		}
	}
	if n := requests(t, server, "Txn") - txns; n != 0 {
		t.Errorf("%v transactions to hand over permits", n)
	}
}

// TestReadersWakeNoReaders: the watch of shared waiters reports the end of the exclusive holder, and not
// what other readers do.
func TestReadersWakeNoReaders(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	a, b := newStore(t, server.URL()), newStore(t, server.URL())
	writer := want.Acquire(t, a, request("x"))
	var wakes atomic.Int64
	req := requestIn(sharedMode, "x")
	stop := want.Value(b.Watch(t.Context(), req, func() { wakes.Add(1) }))(t)
	defer stop()
	want.Held(t, b, req, "a writer has it")
	events := metric(t, server, "etcd_debugging_mvcc_events_total", "")
	woken := wakes.Load()
	for range 10 {
		other := requestIn(sharedMode, "x")
		other.Queue = true
		want.Held(t, a, other, "a writer has it")
		want.Error(t, "giving up a place", a.Release(t.Context(), want.Undo(other)), driver.ErrNotHeld)
	}
	if n := wakes.Load() - woken; n != 0 {
		t.Errorf("%d needless wake-ups", n)
	}
	if n := metric(t, server, "etcd_debugging_mvcc_events_total", "") - events; n != 0 {
		t.Errorf("%v events for a shared waiter while only readers came and went", n)
	}
	want.Release(t, a, writer)
	await.Until(t, "the reader is woken", func() bool { return wakes.Load() > woken })
	want.Acquire(t, b, req)
}

// TestFairCrowd: fair waiters of one process ask for nothing while they wait, and are served in the
// order of the queue for about a request each. An unrelated lock of the process stays.
func TestFairCrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	observer := newStore(t, server.URL())
	const ttl = 6 * time.Second
	client := newClient(t, server.URL(), ttl)
	held := lockAnyhow(t, newClient(t, server.URL(), ttl), "popular")
	unrelated := lockAnyhow(t, client, "unrelated")
	const callers = 200
	got := want.Crowd(t, client, "popular", callers)
	await.Until(t, "all callers have places", func() bool { return waiters(observer, "popular") == callers })
	asked := func() float64 {
		return requests(t, server, "Txn") + requests(t, server, "Range") + requests(t, server, "DeleteRange")
	}
	before := asked()
	<-time.After(ttl * 5 / 12) // in which each would poll by itself
	if n := asked() - before; n > callers/4 {
		t.Errorf("%v requests of %d waiters while nothing happened", n, callers)
	}
	before = asked()
	want.Unlock(t, held)
	want.ServedAll(t, got, callers)
	if n := asked() - before; n > callers*3/2 {
		t.Errorf("%v requests to serve %d waiters", n, callers)
	}
	if err := unrelated.Context().Err(); err != nil {
		t.Errorf("the unrelated lock: %v", err)
	}
	want.Unlock(t, unrelated)
}

// TestCrowdThatLostItsLease: fair waiters whose places ended with their lease take new ones, and share what
// they know of the queue as before.
func TestCrowdThatLostItsLease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	observer := newStore(t, server.URL())
	held := lockAnyhow(t, newClient(t, server.URL(), 20*time.Second), "popular")
	const callers = 200
	got := want.Crowd(t, newClient(t, server.URL(), 30*time.Second), "popular", callers) // another TTL, so another lease
	placed := func() bool { return waiters(observer, "popular") == callers }
	await.Until(t, "all callers have places", placed)
	before := requests(t, server, "Txn")
	raw := rawClient(t, server.URL())
	revokeLeaseOf(t, raw, last(t, raw, "popular"))
	await.Until(t, "all callers have places again", placed)
	want.Unlock(t, held)
	want.ServedAll(t, got, callers)
	// Each writes its key, and asks once more because of the deletions that it was notified of meanwhile.
	if n := requests(t, server, "Txn") - before; n > callers*11/4 {
		t.Errorf("%v transactions for %d waiters", n, callers)
	}
}
