package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// refused demands that TryLock and Lock fail soon with an error that contains says.
func refused(t *testing.T, client *dlock.Client, name, says string, unreachable bool) {
	t.Helper()
	type attempt = func(context.Context, string, ...dlock.Option) (*dlock.Lease, error)
	for what, lock := range map[string]attempt{"TryLock": client.TryLock, "Lock": client.Lock} {
		if unreachable { // a second attempt for the same name would wait until the first one is undone
			name += "-" + what
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		lease, err := lock(ctx, name)
		cancel()
		switch {
		case err == nil:
			_ = lease.Unlock(t.Context()) // the test has failed already
			t.Errorf("%s works; want an error that says %q", what, says)
		case !strings.Contains(err.Error(), says):
			t.Errorf("%s: %v; want it to say %q", what, err, says)
		case errors.Is(err, dlock.ErrUnreachable) != unreachable:
			t.Errorf("%s: %v; ErrUnreachable: %v, want %v", what, err, !unreachable, unreachable)
		}
	}
}

func TestNameOfOtherDataIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		for kind, put := range map[string]func(key string) error{
			"list": func(key string) error { return raw.RPush(t.Context(), key, "data").Err() },
			"set":  func(key string) error { return raw.SAdd(t.Context(), key, "data").Err() },
			"stream": func(key string) error {
				return raw.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
			},
		} {
			key := protocol + "-" + kind
			if err := put(key); err != nil {
				t.Fatal(err)
			}
			refused(t, client, key, "holds something else", false)
			if n := raw.Exists(t.Context(), key).Val(); n != 1 {
				t.Errorf("the %s under the name of the lock is gone", kind)
			}
			counter := "redisson_lock_token:{c" + key + "}"
			if protocol == "plain" {
				counter = "dlock:token:{c" + key + "}"
			}
			if err := put(counter); err != nil {
				t.Fatal(err)
			}
			refused(t, client, "c"+key, "holds something else", false)
			for name, part := range map[string]string{key: key, "c" + key: counter} {
				if _, err := client.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrMisconfigured) || !strings.Contains(err.Error(), strconv.Quote(part)) {
					t.Errorf("TryLock(%q): %v; want ErrMisconfigured and the key %q", name, err, part)
				}
			}
			if n := raw.Exists(t.Context(), "c"+key).Val(); n != 0 {
				t.Errorf("the lock is taken although its counter is a %s", kind)
			}
			_, err := client.LockAll(t.Context(), []string{"free-" + key, "c" + key}, dlock.WithWait(0))
			if err == nil || raw.Exists(t.Context(), "free-"+key).Val() != 0 {
				t.Errorf("LockAll with a counter that is a %s: %v, and the first lock is left: %v", kind, err, raw.Exists(t.Context(), "free-"+key).Val())
			}
		}
	}
}

// TestProtocolsExcludeEachOther: a lock of one protocol is an error for the other, which says why.
func TestProtocolsExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	_, redisson := openURL(t, server.URL())
	_, plain := openURL(t, server.URL()+"?protocol=plain")
	if _, err := redisson.TryLock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	refused(t, plain, "a", "by the other protocol", false)
	if _, err := plain.TryLock(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	refused(t, redisson, "b", "by the other protocol", false)
}

// TestOverwrittenLockAloneIsLost: if another program overwrites a lock, the renewal of the other
// locks succeeds.
func TestOverwrittenLockAloneIsLost(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		var grants []driver.Grant
		for i := range 5 {
			grant, err := store.Acquire(t.Context(), driver.Request{Name: fmt.Sprintf("%s-%d", protocol, i), Owner: driver.NewOwner(), TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, grant)
		}
		raw.Del(t.Context(), grants[2].Name)
		if err := raw.RPush(t.Context(), grants[2].Name, "data").Err(); err != nil {
			t.Fatal(err)
		}
		for i, err := range store.Renew(t.Context(), grants) {
			if i == 2 && !errors.Is(err, driver.ErrNotHeld) || i != 2 && err != nil {
				t.Errorf("%s: renewing lock %d: %v; only the third is lost", protocol, i, err)
			}
		}
	}
}

// TestBadCounterLeavesNoLock: a store that knows the server's clock leaves no lock either.
func TestBadCounterLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		store, client := openURL(t, server.URL()+"?protocol="+protocol)
		for range 5 {
			acquireAndRelease(t, store, "warm-"+protocol)
		}
		prefix := map[string]string{"redisson": "redisson_lock_token", "plain": "dlock:token"}[protocol]
		if err := raw.RPush(t.Context(), prefix+":{a-"+protocol+"}", "data").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Acquire(t.Context(), driver.Request{Name: "a-" + protocol, Owner: driver.NewOwner(), TTL: time.Minute}); err == nil {
			t.Error("Acquire works")
		}
		if n := raw.Exists(t.Context(), "a-"+protocol).Val(); n != 0 {
			t.Errorf("%s: the lock is half taken", protocol)
		}
		refused(t, client, "a-"+protocol, "holds something else", false)

		// A counter that is too large is an error.
		if err := raw.Del(t.Context(), prefix+":{b-"+protocol+"}").Err(); err != nil {
			t.Fatal(err)
		}
		if protocol == "redisson" {
			raw.Set(t.Context(), prefix+":{b-redisson}", "9007199254740993", 0)
		} else {
			raw.ZAdd(t.Context(), prefix+":{b-plain}", redis.Z{Score: 9007199254740993, Member: "t"}, redis.Z{Score: 1, Member: "new"})
		}
		refused(t, client, "b-"+protocol, "too large", false)
	}
}

func TestFullServerRefusesAndReleases(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	raw := clients(t, server.Addr())[0]
	var leases []*dlock.Lease
	var holders []*dlock.Client
	for _, protocol := range protocols {
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		lease, err := client.Lock(t.Context(), "held-"+protocol)
		if err != nil {
			t.Fatal(err)
		}
		leases, holders = append(leases, lease), append(holders, client)
	}
	fill := func(size int) {
		for i := 0; ; i++ {
			if err := raw.Set(t.Context(), fmt.Sprintf("filler%d-%d", size, i), strings.Repeat("x", size), 0).Err(); err != nil {
				if !strings.HasPrefix(err.Error(), "OOM") {
					t.Fatal(err)
				}
				return
			}
		}
	}
	fill(50_000)
	for i, client := range holders {
		fill(1000)
		fill(10)
		refused(t, client, "new-"+protocols[i], "out of memory", false)
		if n := raw.Exists(t.Context(), "new-"+protocols[i]).Val(); n != 0 {
			t.Error("the lock is half taken")
		}
		if err := leases[i].Unlock(t.Context()); err != nil {
			t.Errorf("a full server must still release: %v", err)
		}
	}
}

func TestReplicaRefusesLocks(t *testing.T) {
	t.Parallel()
	s := servers.RunSentinel(t, servers.SentinelOptions{Args: inMemory})
	for _, protocol := range protocols {
		_, client := openURL(t, "redis://"+s.Servers[1].Addr()+"?protocol="+protocol)
		refused(t, client, "a", "the server is a replica", true)
	}
}

func TestLoadingServerIsUnreachable(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, "--enable-debug-command", "yes", "--appendonly", "no", "--loading-process-events-interval-bytes", "1024")
	raw := clients(t, server.Addr())[0]
	pipe := raw.Pipeline()
	for i := range 4000 {
		pipe.Set(t.Context(), fmt.Sprintf("key%d", i), strings.Repeat("x", 100), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := raw.ConfigSet(t.Context(), "key-load-delay", "2000").Err(); err != nil { // 8 s in all
		t.Fatal(err)
	}
	reload := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1})
	t.Cleanup(func() { reload.Close() })
	go reload.Do(context.Background(), "debug", "reload")
	deadline := time.Now().Add(10 * time.Second)
	for err := error(nil); err == nil || !strings.HasPrefix(err.Error(), "LOADING"); err = raw.Get(t.Context(), "key1").Err() {
		if time.Now().After(deadline) {
			t.Fatalf("the server is never loading: %v", err)
		}
	}
	for _, protocol := range protocols {
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		_, err := client.TryLock(t.Context(), "a")
		if !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), "still loading") {
			t.Errorf("%s: %v; want ErrUnreachable, because it is still loading", protocol, err)
		}
	}
}

// A server that is gone is reported soon by every call: an attempt without a connection has
// nothing to undo.
func TestStoppedServerIsReportedSoonByEveryCall(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		server := servers.Run(t, servers.Redis, inMemory...)
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		client := dlock.New(store, &dlock.Options{RequestTimeout: time.Minute}) // how long a call waits for an undo
		t.Cleanup(func() { client.Close() })
		lease, err := client.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an attempt without a connection is not sent", func() bool { // the first ones have old connections
			_, err := client.TryLock(t.Context(), "first")
			return driver.Unchanged(err)
		})
		for i := range 3 {
			start := time.Now()
			if _, err := client.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("TryLock %d: %v; want ErrUnreachable", i+1, err)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("TryLock %d took %v", i+1, took)
			}
		}
	})
}
