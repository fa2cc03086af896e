package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

func requestFor(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Holder: driver.Holder{Host: "h", PID: 1, Program: "p"}}
}

func acquire(t *testing.T, store driver.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := store.Acquire(t.Context(), requestFor(name)); err != nil {
			t.Fatalf("acquiring %q: %v", name, err)
		}
	}
}

// listed returns all locks with a prefix. It demands that there is no error.
func listed(t *testing.T, store driver.Store, prefix string) map[string]driver.Info {
	t.Helper()
	found := make(map[string]driver.Info)
	for info, err := range store.(driver.Lister).List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("listing %q: %v", prefix, err)
		}
		found[info.Name] = info
	}
	return found
}

// TestListStopsWhenItsCallerDoes: a caller that has found its lock ends the list, on any server of
// a cluster.
func TestListStopsWhenItsCallerDoes(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, _ := openURL(t, start(t, inMemory...).url)
			for i := range 20 {
				acquire(t, store, fmt.Sprintf("job%d", i))
			}
			yielded := 0
			for _, err := range store.(driver.Lister).List(t.Context(), "job") {
				if err != nil {
					t.Fatal(err)
				}
				yielded++
				break
			}
			if yielded != 1 {
				t.Errorf("%d locks were yielded; want one", yielded)
			}
		})
	}
}

// TestQueriesReturnWhenTheContextEnds: calls that change nothing return although the server hangs,
// however long the client's own timeouts are.
func TestQueriesReturnWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	queries := map[string]func(context.Context, driver.Store) error{
		"Diagnose": func(ctx context.Context, s driver.Store) error {
			_, err := s.(driver.Diagnoser).Diagnose(ctx)
			return err
		},
		"Find": func(ctx context.Context, s driver.Store) error {
			_, _, err := s.(driver.Finder).Find(ctx, "x")
			return err
		},
		"List": func(ctx context.Context, s driver.Store) error {
			for _, err := range s.(driver.Lister).List(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	contexts := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, limit)
		},
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(limit, cancel)
			return ctx, cancel
		},
	}
	check := func(t *testing.T, url string, hanging ...*servers.Server) {
		t.Helper()
		stores := map[string]driver.Store{}
		for _, protocol := range protocols {
			for _, state := range []string{"new", "used"} {
				store, _ := openURL(t, url+"?"+patient+"&protocol="+protocol)
				if state == "used" {
					acquire(t, store, protocol)
					listed(t, store, "")
				}
				stores[protocol+", "+state] = store
			}
		}
		for _, server := range hanging {
			must(t, server.Pause())
			t.Cleanup(func() { _ = server.Resume() }) // so that it can be stopped in order
		}
		for name, store := range stores {
			for what, query := range queries {
				for how, end := range contexts {
					ctx, cancel := end(t.Context())
					began := time.Now()
					err := query(ctx, store)
					took := time.Since(began)
					if !errors.Is(err, driver.ErrUnreachable) {
						t.Errorf("%s, %s, %s: %v; want ErrUnreachable", what, name, how, err)
					}
					if took > 20*time.Second {
						t.Fatalf("%s, %s, %s after %v: it took %v", what, name, how, limit, took)
					}
					cancel()
				}
			}
		}
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.Redis, inMemory...)
		check(t, server.URL(), server)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := servers.RunCluster(t, inMemory...)
		check(t, c.URL(), c.Nodes...)
	})
}

// TestListIgnoresOtherData: the list contains all locks, and no other data of the database.
func TestListIgnoresOtherData(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t, inMemory...)
			store, _ := openURL(t, top.url)
			plain, _ := openURL(t, top.url+"?protocol=plain")
			acquire(t, store, "lock", "{tag}lock", "{tag}", "tag")
			acquire(t, plain, "plain lock", "{plain}")
			raw := redis.UniversalClient(top.servers[0])
			if name == "cluster" {
				raw = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{top.servers[0].Options().Addr}})
				t.Cleanup(func() { raw.Close() })
			}
			for _, key := range []string{"odd}key", "a{}b", "{", "hash", "{other}", "dlock:odd", "redisson_lock_token:{x}"} {
				must(t, raw.HSet(t.Context(), key, "f", 1).Err())
			}
			must(t, raw.RPush(t.Context(), "redisson_lock_token:{hash}", 1).Err())
			for key, text := range map[string]string{
				"opening-time": "12:30:00", "c0ffee": "c0ffee:12:{}", "text}": "x", "empty": "", "large": strings.Repeat("x", 100_000),
				"nearly": strings.Repeat("a", 32) + ":12:x",
			} {
				must(t, raw.Set(t.Context(), key, text, 0).Err())
			}
			want := []string{"lock", "tag", "{tag}", "{tag}lock"}
			if got := slices.Sorted(maps.Keys(listed(t, store, ""))); !slices.Equal(got, want) {
				t.Errorf("listed are %q; want %q", got, want)
			}
			if got := slices.Sorted(maps.Keys(listed(t, store, "{tag"))); !slices.Equal(got, want[2:]) {
				t.Errorf("listed with {tag are %q; want %q", got, want[2:])
			}
			want = []string{"plain lock", "{plain}"}
			if got := slices.Sorted(maps.Keys(listed(t, plain, ""))); !slices.Equal(got, want) {
				t.Errorf("listed in the plain protocol are %q; want %q", got, want)
			}
			if err := plain.(driver.Breaker).Break(t.Context(), "opening-time", 30); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("breaking what is no lock: %v; want ErrNotHeld", err)
			}
			if n := raw.Exists(t.Context(), "opening-time").Val(); n != 1 {
				t.Error("Break deleted what is no lock")
			}
		})
	}
}

// TestListTakesFewRoundTrips: listing a server with many other keys takes few round trips, also if
// the server has forgotten the scripts.
func TestListTakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	const keys = 5000
	server, raw := run(t)
	pipe := raw.Pipeline()
	for i := range keys {
		pipe.HSet(t.Context(), fmt.Sprintf("hash%d", i), "f", 1)
		pipe.Set(t.Context(), fmt.Sprintf("string%d", i), "v", 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range protocols {
		trips := &counting{}
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()}, trips)
		for i := range 200 {
			acquire(t, store, fmt.Sprintf("%v lock %d", protocol, i))
		}
		must(t, raw.ScriptFlush(t.Context()).Err())
		must(t, raw.ConfigResetStat(t.Context()).Err())
		before := trips.trips()
		if n := len(listed(t, store, "")); n != 200 {
			t.Errorf("%v: %d locks are listed; want 200", protocol, n)
		}
		if n := trips.trips() - before; n > 2*keys/100 {
			t.Errorf("%v: %d keys were scanned in %d round trips", protocol, 2*keys, n)
		}
		before = trips.trips()
		if _, held, err := store.Find(t.Context(), fmt.Sprintf("%v lock 7", protocol)); !held || err != nil {
			t.Errorf("%v: a lock that is held is not found: %v", protocol, err)
		}
		if n := trips.trips() - before; n > 2 {
			t.Errorf("%v: one lock was found in %d round trips; want two", protocol, n)
		}
		if n := callsOf(t, raw, "eval"); n != 1 {
			t.Errorf("%v: the script was sent %d times; want once", protocol, n)
		}
	}
}

// TestTokenAheadOfTheClockDoesNotTellSince: the token of a lock is ahead of the server's clock, so that it
// does not say when the lock was granted.
func TestTokenAheadOfTheClockDoesNotTellSince(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	for _, protocol := range protocols {
		store, client := openURL(t, server.URL()+"?protocol="+protocol)
		grant := acquireOne(t, store, protocol)
		if info, _, err := client.Find(t.Context(), protocol); err != nil || time.Since(info.Since).Abs() > time.Minute {
			t.Errorf("%s: held since %v, %v; want now", protocol, info.Since, err)
		}
		mustRelease(t, store, grant)
		setCounter(t, raw, protocol, protocol, uint64(time.Now().Add(24*time.Hour).UnixMicro()))
		grant = acquireOne(t, store, protocol)
		info, found, err := client.Find(t.Context(), protocol)
		if err != nil || !found || info.Token != grant.Token || !info.Since.IsZero() {
			t.Errorf("%s: token %d since %v, %v; want token %d and an unknown time", protocol, info.Token, info.Since, err, grant.Token)
		}
	}
}
