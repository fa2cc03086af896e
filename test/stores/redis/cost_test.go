package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// served returns how many commands a server has run for clients, without those inside scripts.
func served(t *testing.T, raw *redis.Client) int {
	t.Helper()
	return callsOf(t, raw, "evalsha", "eval", "multi", "exec", "publish", "script|load", "subscribe", "wait", "time")
}

// callsOf returns how often a server has run commands, also in scripts.
func callsOf(t *testing.T, raw *redis.Client, commands ...string) (calls int) {
	t.Helper()
	info, err := raw.Info(t.Context(), "commandstats").Result()
	must(t, err)
	for _, command := range commands {
		_, stats, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
		text, _, _ := strings.Cut(stats, ",")
		n, _ := strconv.Atoi(text) // the server lists no command that it has not run
		calls += n
	}
	return calls
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	for protocol, perPair := range map[string]int{
		"redisson": 5, // a script to lock, a script with three publications to unlock
		"plain":    4, // MULTI and EXEC, a script and its publication
	} {
		trips := &counting{}
		locks := dlock.New(newStore(t, protocol, &redis.Options{Addr: server.Addr()}, trips), nil)
		pair := func(name string) { unlock(t, mustLock(t, locks, name)) }
		const pairs = 50
		for range 2 { // the scripts are loaded, the server's clock is known, and every name has its counter
			for i := range pairs {
				pair(fmt.Sprintf("%v-%d", protocol, i))
			}
		}
		before, tripsBefore := served(t, raw), trips.trips()
		for i := range pairs {
			pair(fmt.Sprintf("%v-%d", protocol, i))
		}
		if n := served(t, raw) - before; n != pairs*perPair {
			t.Errorf("%v: %d commands for %d pairs; want %d", protocol, n, pairs, pairs*perPair)
		}
		if n := trips.trips() - tripsBefore; n != 2*pairs {
			t.Errorf("%v: %d round trips for %d pairs; want two each", protocol, n, pairs)
		}
		locks.Close()
	}
}

// TestRenewalIsCheap: 10,000 locks are renewed with at most 100 commands.
func TestRenewalIsCheap(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, "--appendonly", "no")
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		const locks, batch = 10_000, 1000 // as the watchdog sends them
		var grants []driver.Grant
		for i := 0; i < locks; i += batch {
			reqs := make([]driver.Request, batch)
			for j := range reqs {
				reqs[j] = inMode(driver.Mode{}, fmt.Sprintf("%s-%d", protocol, i+j))
			}
			more, err := store.(driver.BatchAcquirer).AcquireAll(t.Context(), reqs)
			must(t, err)
			grants = append(grants, more...)
		}
		before := served(t, raw)
		for i := 0; i < locks; i += batch {
			if errs := store.Renew(t.Context(), grants[i:i+batch]); errs != nil {
				t.Fatalf("%s: %v", protocol, errs)
			}
		}
		if n := served(t, raw) - before; n > locks/100 {
			t.Errorf("%s: %d commands renew %d locks; want at most %d", protocol, n, locks, locks/100)
		}
		mustRelease(t, store, grants[0])
		errs := store.Renew(t.Context(), grants[:batch])
		for i, err := range errs {
			if (err != nil) != (i == 0) {
				t.Errorf("%s: lock %d of a batch in which the first was released: %v", protocol, i, err)
			}
		}
	}
}
