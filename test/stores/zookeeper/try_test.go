package zookeeper

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestRefusedTryCreatesNothing: an attempt without waiting that the holders refuse creates no node, in
// front of which others would be refused, too, although the lock is free by then.
func TestRefusedTryCreatesNothing(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	for name, modes := range map[string]struct {
		held, tried driver.Mode
		node        string
	}{
		"exclusive":          {exclusive, exclusive, ""},
		"shared":             {exclusive, shared, ""},
		"exclusive-by-share": {shared, exclusive, ""},
		"permit":             {limitOne, limitOne, "/leases"},
	} {
		changes := func() int32 {
			_, stat, err := conn.Exists("/" + name + modes.node)
			if err != nil || stat == nil {
				t.Fatalf("%v, %v", stat, err)
			}
			return stat.Cversion
		}
		grant := want.Acquire(t, other, requestIn(modes.held, name))
		before := changes()
		for range 3 {
			mustWait(t, store, requestIn(modes.tried, name))
		}
		if after := changes(); after != before {
			t.Errorf("%s: refused attempts made %d changes of nodes", name, after-before)
		}
		want.Release(t, other, grant)
		want.Release(t, store, want.Acquire(t, store, requestIn(modes.tried, name))) // at once, although another server may not know of it yet
	}
}

// TestOneOfRacingTriesWins: of attempts without waiting that several processes make at the same time
// on a free lock at least one is granted, and of a semaphore as many as it has permits.
func TestOneOfRacingTriesWins(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	const tries, rounds = 6, 25
	for what, race := range map[string]struct {
		query string
		mode  func(i int) driver.Mode
		wins  int
	}{
		"exclusive": {"", func(int) driver.Mode { return exclusive }, 1},
		"unfair":    {"?order=unfair", func(int) driver.Mode { return exclusive }, 1},
		"shared":    {"", func(int) driver.Mode { return shared }, tries},
		"mixed":     {"", func(i int) driver.Mode { return driver.Mode{Shared: i%2 == 0} }, 1},
		"permits":   {"", func(int) driver.Mode { return driver.Mode{Limit: 2} }, 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var stores []driver.Store
			for range tries {
				stores = append(stores, open(t, server.URL()+race.query))
			}
			for round := range rounds {
				grants := make([]driver.Grant, tries)
				var granted atomic.Int64
				inParallel(tries, func(i int) {
					var err error
					if grants[i], err = stores[i].Acquire(t.Context(), requestIn(race.mode(i), what)); err == nil {
						granted.Add(1)
					} else if !errors.Is(err, driver.ErrHeld) {
						t.Errorf("Acquire: %v", err)
					}
				})
				if int(granted.Load()) < race.wins {
					t.Errorf("round %d: %d of %d attempts on a free lock were granted; want at least %d", round, granted.Load(), tries, race.wins)
				}
				inParallel(tries, func(i int) {
					if grants[i].Token != 0 {
						want.Release(t, stores[i], grants[i])
					}
				})
			}
		})
	}
}

// inParallel calls f for 0 to n-1 at the same time.
func inParallel(n int, f func(i int)) {
	var calls sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		calls.Go(func() { <-begin; f(i) })
	}
	close(begin)
	calls.Wait()
}

// TestTriesDoNotKeepEachOtherOut: processes that try again and again get a lock that each of them
// releases at once.
func TestTriesDoNotKeepEachOtherOut(t *testing.T) { // not parallel: it keeps the machine busy
	server := servers.Run(t, servers.ZooKeeper)
	const processes = 16
	var stores []driver.Store
	for range processes {
		stores = append(stores, open(t, server.URL()))
	}
	for name, mode := range map[string]driver.Mode{"lock": exclusive, "permit": limitOne} {
		var tried, granted atomic.Int64
		end := time.Now().Add(500 * time.Millisecond)
		inParallel(processes, func(i int) {
			for time.Now().Before(end) {
				grant, err := stores[i].Acquire(t.Context(), requestIn(mode, name))
				tried.Add(1)
				if err == nil {
					granted.Add(1)
					want.Release(t, stores[i], grant)
				}
			}
		})
		t.Logf("%s: %d of %d attempts granted", name, granted.Load(), tried.Load())
		if granted.Load() < tried.Load()/30 { // if all attempts created nodes, one of 80 was granted
			t.Errorf("%s: only %d of %d attempts were granted", name, granted.Load(), tried.Load())
		}
	}
}
