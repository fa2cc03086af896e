package etcd

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestShareIsTwoRequests: a share beside other holders costs what an exclusive lock costs.
func TestShareIsTwoRequests(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	a, b := newStore(t, server.URL()), newStore(t, server.URL())
	for name, mode := range map[string]driver.Mode{"shared": sharedMode, "permit": {Limit: 3}} {
		if _, err := a.Acquire(t.Context(), requestIn(mode, name)); err != nil {
			t.Fatal(err)
		}
		const pairs = 20
		txns, deletes := requests(t, server, "Txn"), requests(t, server, "DeleteRange")
		for range pairs {
			req := requestIn(mode, name)
			req.Queue = true // as Lock asks
			grant, err := b.Acquire(t.Context(), req)
			if err == nil {
				err = b.Release(t.Context(), grant)
			}
			if err != nil {
				t.Fatal(err)
			}
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
	two := driver.Mode{Limit: 2}
	var held []driver.Grant
	for range two.Limit {
		grant, err := holder.Acquire(t.Context(), requestIn(two, "x"))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, grant)
	}
	const crowd = 6 // no more than a waiter remembers
	var reqs [crowd]driver.Request
	var wakes [crowd]atomic.Int64
	for i := range reqs {
		reqs[i] = requestIn(two, "x")
		stop, err := store.(driver.Watcher).Watch(t.Context(), reqs[i], func() { wakes[i].Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		if _, err := store.Acquire(t.Context(), reqs[i]); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("waiter %d: %v", i, err)
		}
	}
	var before [crowd]int64
	for i := range wakes {
		before[i] = wakes[i].Load()
	}
	txns := requests(t, server, "Txn")
	for next, grant := range held {
		if err := holder.Release(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next waiter is woken", func() bool { return wakes[next].Load() > before[next] })
		if _, err := store.Acquire(t.Context(), reqs[next]); err != nil {
			t.Errorf("waiter %d, which was woken: %v", next, err)
		}
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
	writer, err := a.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	var wakes atomic.Int64
	req := requestIn(sharedMode, "x")
	stop, err := b.(driver.Watcher).Watch(t.Context(), req, func() { wakes.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	wantHeld := func(store driver.Store, req driver.Request) {
		t.Helper()
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire beside an exclusive holder: %v", err)
		}
	}
	wantHeld(b, req)
	events := metric(t, server, "etcd_debugging_mvcc_events_total", "")
	woken := wakes.Load()
	for range 10 {
		other := requestIn(sharedMode, "x")
		other.Queue = true
		wantHeld(a, other)
		if err := a.Release(t.Context(), driver.Grant{Name: "x", Owner: other.Owner}); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatal(err)
		}
	}
	if n := wakes.Load() - woken; n != 0 {
		t.Errorf("%d needless wake-ups", n)
	}
	if n := metric(t, server, "etcd_debugging_mvcc_events_total", "") - events; n != 0 {
		t.Errorf("%v events for a shared waiter while only readers came and went", n)
	}
	if err := a.Release(t.Context(), writer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reader is woken", func() bool { return wakes.Load() > woken })
	if _, err := b.Acquire(t.Context(), req); err != nil {
		t.Errorf("a reader that was woken: %v", err)
	}
}
