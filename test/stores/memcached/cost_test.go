package memcached

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// stat returns one of the server's statistics.
func stat(t *testing.T, addr, name string) int {
	t.Helper()
	text, err := converse(t.Context(), addr, "stats\r\n", "END")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "STAT "+name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server does not report %s", name)
	return 0
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	const limit = 30 * time.Second
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// TestWaitersShareOnePoller: however many waiters a process has, each name costs at most 20 requests
// a second, and waiters need no connections of their own.
func TestWaitersShareOnePoller(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	client := func() *dlock.Client {
		store, err := open(addr)
		if err != nil {
			t.Fatal(err)
		}
		c := dlock.New(store, nil)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	holder, waiter := client(), client()
	const names, each = 10, 20
	var leases []*dlock.Lease
	for i := range names {
		lease, err := holder.Lock(bounded(t), fmt.Sprintf("n%d", i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	reads := stat(t, addr, "cmd_get")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range names * each {
		all.Go(func() {
			lease, err := waiter.Lock(ctx, fmt.Sprintf("n%d", i%names))
			if err != nil {
				t.Error(err)
				return
			}
			if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	requests := func() int { return stat(t, addr, "cmd_get") + stat(t, addr, "cmd_set") }
	// A refused attempt reads the item. If not all goroutines wait yet, the counts are too high,
	// never too low.
	eventually(t, "each name has a waiter", func() bool { return stat(t, addr, "cmd_get") >= reads+names })
	before, start, asked := requests(), time.Now(), 0
	eventually(t, "enough requests were sent to measure their rate", func() bool {
		asked = requests() - before
		return asked > 40*names
	})
	if took := time.Since(start); float64(asked) > 20*names*took.Seconds() {
		t.Errorf("%d requests in %v for %d names; want at most 20 a second for each", asked, took, names)
	}
	if n := stat(t, addr, "curr_connections"); n > 2*16+3 { // of two pools, and of this test
		t.Errorf("%d connections", n)
	}
	for _, lease := range leases {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}

// TestIdleConnectionIsReused: a connection that was idle for a while is used again.
func TestIdleConnectionIsReused(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store := openNow(t, addr)
	find := func() {
		t.Helper()
		if _, _, err := store.(driver.Finder).Find(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	find()
	before := stat(t, addr, "total_connections")
	for range 3 {
		<-time.After(200 * time.Millisecond)
		find()
	}
	if n := stat(t, addr, "total_connections") - before; n != 1 { // by stat
		t.Errorf("%d connections were opened; want none", n-1)
	}
}

// TestFirstPairIsTwoRoundTrips: a pair over a new connection is two round trips, as over others: the
// item is read when it is stored, and not again before it is deleted.
func TestFirstPairIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store := openNow(t, addr)
	if err := store.Release(t.Context(), take(t, store, "a")); err != nil {
		t.Fatal(err)
	}
	if n := stat(t, addr, "cmd_get"); n != 1 {
		t.Errorf("the item was read %d times; want once", n)
	}
}
