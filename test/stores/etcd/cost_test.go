package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// metric returns the sum of a metric of the server over all labels that contain a text.
func metric(t testing.TB, server *servers.Server, name, label string) (sum float64) {
	t.Helper()
	reply, err := http.Get("http://" + server.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
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
	unlock(t, lockAnyhow(t, client, "warm-up"))
	const pairs = 50
	start := time.Now()
	txns, deletes, kept := requests(t, server, "Txn"), requests(t, server, "DeleteRange"), requests(t, server, "LeaseKeepAlive")
	for i := range pairs {
		unlock(t, lockAnyhow(t, client, fmt.Sprint("name ", i)))
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
		next := make(chan *dlock.Lease, 1)
		go func() { next <- lockAnyhow(t, clients[(i+1)%2], "hot") }()
		eventually(t, "the other client waits", func() bool { return waiters(observer, "hot") == 1 })
		unlock(t, lease)
		lease = <-next
	}
	unlock(t, lease)
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
	held, err := store.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	stop, err := store.(driver.Watcher).Watch(t.Context(), request("x"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	next := request("x")
	next.Queue = true
	for range 2 {
		if _, err := store.Acquire(t.Context(), next); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of a held lock: %v", err)
		}
	}
	if n := waiters(store, "x"); n != 1 {
		t.Errorf("%d wait; want 1", n)
	}
	if err := store.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("an attempt after the waiter's: %v; want ErrHeld", err)
	}
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: next.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("giving up a place: %v; want ErrNotHeld", err)
	}
	if _, err := store.Acquire(t.Context(), request("x")); err != nil {
		t.Errorf("a lock without holder and waiters: %v", err)
	}
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
	if errs := store.Renew(t.Context(), grants); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	if n := requests(t, server, "Txn") - txns; n != locks/100 {
		t.Errorf("%v transactions to renew %d locks", n, locks)
	}
	if n := requests(t, server, "LeaseKeepAlive") - kept; n > 1 {
		t.Errorf("%v messages to renew one lease", n)
	}
	if err := store.Release(t.Context(), grants[0]); err != nil {
		t.Fatal(err)
	}
	for i, err := range store.Renew(t.Context(), grants) {
		if (err != nil) != (i == 0) {
			t.Errorf("Renew of lock %d after the first was released: %v", i, err)
		}
	}
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute}
}

// TestWaitersShareOneKeyAndOneWatch: 10,000 waiters of one process for one name have one key and one
// watch, and send no requests while they wait.
func TestWaitersShareOneKeyAndOneWatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	lease := lockAnyhow(t, newClient(t, server.URL(), time.Minute), "popular")
	crowd := newClient(t, server.URL(), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const callers = 10_000
	var all sync.WaitGroup
	results := make(chan error, callers)
	for range callers {
		all.Go(func() {
			_, err := crowd.Lock(ctx, "popular")
			results <- err
		})
	}
	count := func() int64 {
		reply, err := raw.Get(t.Context(), "popular/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return reply.Count
	}
	eventually(t, "the crowd has its place", func() bool { return count() == 2 })
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
	cancel()
	all.Wait()
	for range callers {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled waiter: %v", err)
		}
	}
	eventually(t, "the place is given up", func() bool { return count() == 1 })
	unlock(t, lease)
}
