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
	"github.com/dlock-go/dlock/test/servers"
)

// stat reads one of the server's figures.
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
	t.Fatalf("the server does not tell %s", name)
	return 0
}

// TestWaitersAreCheap: however many wait in a process, each name costs at most 20
// requests a second, and they need no connection of their own.
func TestWaitersAreCheap(t *testing.T) {
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
		lease, err := holder.Lock(t.Context(), fmt.Sprintf("n%d", i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
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
	<-time.After(time.Second) // until all of them wait; if not, the figures are too high, never too low
	const window = 3 * time.Second
	before := stat(t, addr, "cmd_get") + stat(t, addr, "cmd_set")
	start := time.Now()
	<-time.After(window)
	asked := stat(t, addr, "cmd_get") + stat(t, addr, "cmd_set") - before
	if most := int(20 * names * time.Since(start).Seconds()); asked > most || asked == 0 {
		t.Errorf("%d requests in %v for %d names; want at most %d, and some", asked, window, names, most)
	}
	if n := stat(t, addr, "curr_connections"); n > 2*16+3 { // those of two pools, and of this test
		t.Errorf("%d connections", n)
	}
	for _, lease := range leases {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
