package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// served returns how many commands a server has run for clients, without those inside scripts.
func served(t *testing.T, raw *redis.Client) int {
	t.Helper()
	info, err := raw.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":")
		switch name {
		case "evalsha", "eval", "multi", "exec", "publish", "script|load", "subscribe", "wait", "time":
			calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
			more, err := strconv.Atoi(calls)
			if err != nil {
				t.Fatalf("cannot read %q", line)
			}
			n += more
		}
	}
	return n
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for protocol, perPair := range map[redislock.Protocol]int{
		redislock.Redisson: 5, // a script to lock, a script with three publications to unlock
		redislock.Plain:    4, // MULTI and EXEC, a script and its publication
	} {
		trips := &counting{}
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		client.AddHook(trips)
		t.Cleanup(func() { client.Close() })
		store, err := redislock.New(client, &redislock.Options{Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		locks := dlock.New(store, nil)
		pair := func(name string) {
			lease, err := locks.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
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
		store.Close()
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
				reqs[j] = driver.Request{Name: fmt.Sprintf("%s-%d", protocol, i+j), Owner: driver.NewOwner(), TTL: time.Minute}
			}
			more, err := store.(driver.BatchAcquirer).AcquireAll(t.Context(), reqs)
			if err != nil {
				t.Fatal(err)
			}
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
		if err := store.Release(t.Context(), grants[0]); err != nil {
			t.Fatal(err)
		}
		errs := store.Renew(t.Context(), grants[:batch])
		for i, err := range errs {
			if (err != nil) != (i == 0) {
				t.Errorf("%s: lock %d of a batch in which the first was released: %v", protocol, i, err)
			}
		}
	}
}

// TestForgottenScriptsAreSentAgain: every operation works after SCRIPT FLUSH.
func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		store, client := openURL(t, server.URL()+"?protocol="+protocol)
		forget := func() {
			if err := raw.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		forget()
		lease, err := client.Lock(t.Context(), "a-"+protocol)
		if err != nil {
			t.Fatal(err)
		}
		forget()
		all, err := client.LockAll(t.Context(), []string{"b-" + protocol, "c-" + protocol})
		if err != nil {
			t.Fatal(err)
		}
		grant, err := store.Acquire(t.Context(), driver.Request{Name: "d-" + protocol, Owner: driver.NewOwner(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		forget()
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Error(errs)
		}
		forget()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		forget()
		if err := all.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
