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
	server, raw := run(t)
	for _, protocol := range protocols {
		store, client := openURL(t, server.URL()+"?protocol="+protocol)
		for range 5 { // from now on the server's clock is known
			acquireAndRelease(t, store, "warm-"+protocol)
		}
		for kind, put := range map[string]func(key string) error{
			"list": func(key string) error { return raw.RPush(t.Context(), key, "data").Err() },
			"set":  func(key string) error { return raw.SAdd(t.Context(), key, "data").Err() },
			"stream": func(key string) error {
				return raw.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
			},
		} {
			key := protocol + "-" + kind
			must(t, put(key))
			refused(t, client, key, "holds something else", false)
			if n := raw.Exists(t.Context(), key).Val(); n != 1 {
				t.Errorf("the %s under the name of the lock is gone", kind)
			}
			counter := counterOf(protocol, "c"+key)
			must(t, put(counter))
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
	mustLock(t, redisson, "a")
	refused(t, plain, "a", "by the other protocol", false)
	mustLock(t, plain, "b")
	refused(t, redisson, "b", "by the other protocol", false)
}

// TestOverwrittenLockAloneIsLost: if another program overwrites a lock, the renewal of the other
// locks succeeds.
func TestOverwrittenLockAloneIsLost(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	for _, protocol := range protocols {
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		var grants []driver.Grant
		for i := range 5 {
			grants = append(grants, acquireOne(t, store, fmt.Sprintf("%s-%d", protocol, i)))
		}
		raw.Del(t.Context(), grants[2].Name)
		must(t, raw.RPush(t.Context(), grants[2].Name, "data").Err())
		for i, err := range store.Renew(t.Context(), grants) {
			if i == 2 && !errors.Is(err, driver.ErrNotHeld) || i != 2 && err != nil {
				t.Errorf("%s: renewing lock %d: %v; only the third is lost", protocol, i, err)
			}
		}
	}
}

// TestTooLargeCounterIsRefused: scripts count exactly only up to 2^53.
func TestTooLargeCounterIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		setCounter(t, clients(t, server.Addr())[0], protocol, "b-"+protocol, 1<<53)
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
		lease := mustLock(t, client, "held-"+protocol)
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
