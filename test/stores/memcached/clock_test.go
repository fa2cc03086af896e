package memcached

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// clientNow opens a client until the end of the test. If connected is true, it has a connection.
func clientNow(t *testing.T, addr string, connected bool) *dlock.Client {
	t.Helper()
	store := openNow(t, addr)
	if connected {
		if _, _, err := store.(driver.Finder).Find(t.Context(), "nothing"); err != nil {
			t.Fatal(err)
		}
	}
	client := dlock.New(store, nil)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// soleHolder waits until other gets the lock of the lease. The lease must have ended by then.
func soleHolder(t *testing.T, lease *dlock.Lease, other *dlock.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, err := other.Lock(ctx, name, dlock.WithFixedTTL(time.Minute))
	if err != nil {
		t.Error(err)
		return
	}
	if lease.Context().Err() == nil {
		t.Errorf("lock %q has two holders", name)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
}

// TestPausedServerEndsNoLockEarly: a lock that a server grants after a pause longer than the TTL,
// before its clock is right again, does not end before its lease.
func TestPausedServerEndsNoLockEarly(t *testing.T) {
	t.Parallel()
	for name, connected := range map[string]bool{"connections that are open": true, "new connections": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pausedServer(t, connected)
		})
	}
}

func pausedServer(t *testing.T, connected bool) {
	t.Helper()
	const ttl, holders = 2 * time.Second, 8
	server := servers.Run(t, servers.Memcached)
	var clients []*dlock.Client
	for range holders { // each with connections of its own
		clients = append(clients, clientNow(t, server.Addr(), connected))
	}
	other := clientNow(t, server.Addr(), true)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * ttl)
	asked := make(chan struct{}, holders)
	leases := make([]chan *dlock.Lease, holders)
	for i, client := range clients {
		leases[i] = make(chan *dlock.Lease, 1)
		go func() {
			asked <- struct{}{}
			lease, err := client.Lock(bounded(t), strconv.Itoa(i), dlock.WithFixedTTL(ttl))
			if err != nil {
				t.Error(err)
			}
			leases[i] <- lease
		}()
	}
	for range holders {
		<-asked
	}
	<-time.After(50 * time.Millisecond) // so that the requests arrive before it is resumed
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range holders {
		all.Go(func() {
			if lease := <-leases[i]; lease != nil {
				soleHolder(t, lease, other, strconv.Itoa(i))
			}
		})
	}
	all.Wait()
}

// second waits until the machine's clock shows that fraction of a second. memcached uses the same clock.
func second(t *testing.T, fraction time.Duration) {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	wait := fraction - time.Duration(now.Nsec)
	if wait < 0 {
		wait += time.Second
	}
	<-time.After(wait)
}

// TestSkippedSecondEndsNoLockEarly: the server moves its clock once a second, a little later each
// time, and now and then by two seconds. No lock ends too soon by that.
func TestSkippedSecondEndsNoLockEarly(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	server := servers.Run(t, servers.Memcached)
	holder, other := clientNow(t, server.Addr(), true), clientNow(t, server.Addr(), true)
	pause := func(least, until time.Duration) {
		t.Helper()
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		<-time.After(least)
		second(t, until)
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	// The clock is moved when the server is resumed, at the end of a second, and then every second.
	pause(time.Second, 950*time.Millisecond)
	second(t, 930*time.Millisecond) // when the clock still shows the second before
	lease, err := holder.Lock(bounded(t), "a", dlock.WithFixedTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	second(t, 900*time.Millisecond)
	pause(0, 10*time.Millisecond)
	soleHolder(t, lease, other, "a")
}

// TestLateClockReadingEndsNoLockEarly: a connection on which the server reported a time long past
// grants no lock that ends too soon.
func TestLateClockReadingEndsNoLockEarly(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	for _, late := range []int{4, 1000} { // so that the lock would end too soon, and before it begins
		t.Run(fmt.Sprintf("%d s", late), func(t *testing.T) {
			t.Parallel()
			store := openNow(t, lateClock(t, addr, late, 2))
			grantsForTTL(t, store, strconv.Itoa(late))
		})
	}
}

// TestLateClockReadingInACrowdEndsNoLockEarly: the same for calls that share round trips.
func TestLateClockReadingInACrowdEndsNoLockEarly(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store, err := openCrowded(proxy.Run(t, lateClock(t, addr, 4, math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	grantsForTTL(t, store, "a")
}

// lateClock returns the address of a way to the server that makes the first lines with its time, or
// its age, late by so many seconds.
func lateClock(t *testing.T, addr string, late int, lines int32) string {
	t.Helper()
	var changed atomic.Int32
	return relay(t, addr, func(client io.Writer, line string) {
		for _, name := range []string{"STAT uptime ", "STAT time "} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok && changed.Add(1) <= lines {
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Error(err)
				}
				line = fmt.Sprintf("%s%d\r\n", name, max(0, n-late))
			}
		}
		_, _ = io.WriteString(client, line)
	})
}

// grantsForTTL checks that a lock is stored for its whole TTL.
func grantsForTTL(t *testing.T, store driver.Store, name string) {
	t.Helper()
	const ttl = 5 * time.Second
	grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	info, held, err := store.(driver.Finder).Find(t.Context(), name)
	if err != nil || !held || info.Token != grant.Token || info.Remaining < ttl {
		t.Errorf("Find: %+v, held %v, %v; want token %d for at least %v", info, held, err, grant.Token, ttl)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Error(err)
	}
}

// TestLockThatExpiresAtOnceIsAnError: on a server whose clock is ahead of the time that it
// reports, an acquisition fails with a clear error.
func TestLockThatExpiresAtOnceIsAnError(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	reported(t, relay(t, addr, func(client io.Writer, line string) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "STAT time "); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Error(err)
			}
			line = fmt.Sprintf("STAT time %d\r\n", n-1000)
		}
		_, _ = io.WriteString(client, line)
	}), driver.ErrUnreachable, "gone at once")
}
