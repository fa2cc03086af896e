package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestMissingReplicasRefuseTheLock: without a replica all callers get an error within one replica
// timeout, and no lock remains.
func TestMissingReplicasRefuseTheLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	eachProtocol(t, func(t *testing.T, protocol string) {
		const limit = time.Second
		url := server.URL() + "?read_timeout=1m&protocol=" + protocol
		store, _ := openURL(t, url+"&replicas=1&replica_timeout="+limit.String())
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := store.Acquire(t.Context(), driver.Request{Name: fmt.Sprintf("%s-%d", protocol, i), Owner: driver.NewOwner(), TTL: time.Minute})
				if !errors.Is(err, redislock.ErrNotReplicated) {
					t.Errorf("Acquire: %v; want ErrNotReplicated", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 16*limit/2 {
			t.Errorf("16 callers waited %v for replicas, one after another", took)
		}
		if keys := raw.Keys(t.Context(), protocol+"-*").Val(); len(keys) > 0 {
			t.Errorf("left are %v", keys)
		}

		// A lock that is held is reported as held, not as not replicated.
		plain, _ := openURL(t, url)
		grant, err := plain.Acquire(t.Context(), driver.Request{Name: "held-" + protocol, Owner: driver.NewOwner(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Acquire(t.Context(), driver.Request{Name: grant.Name, Owner: driver.NewOwner(), TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire of a held lock: %v; want ErrHeld", err)
		}

		// A renewal without an acknowledgement is an error, but not a loss.
		for _, err := range store.Renew(t.Context(), []driver.Grant{grant}) {
			if !errors.Is(err, redislock.ErrNotReplicated) || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew: %v; want ErrNotReplicated", err)
			}
		}
	})
}

// TestMissingReplicasDoNotHideWhatHappened: a downgrade and a break do not wait for replicas. With
// an error the caller would repeat the break, and learn that the lock is not held.
func TestMissingReplicasDoNotHideWhatHappened(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		holder, _ := openURL(t, server.URL()+"?protocol="+protocol)
		store, _ := openURL(t, server.URL()+"?replicas=1&replica_timeout=1ms&protocol="+protocol)
		grant := acquireOne(t, holder, protocol)
		if protocol == "redisson" {
			if err := store.(driver.Downgrader).Downgrade(t.Context(), grant); err != nil {
				t.Errorf("Downgrade: %v", err)
			}
			mustRelease(t, holder, mustAcquire(t, holder, inMode(shared, protocol)))
		}
		if err := store.(driver.Breaker).Break(t.Context(), protocol, grant.Token); err != nil {
			t.Errorf("%s: Break: %v", protocol, err)
		}
		acquireOne(t, holder, protocol)
	}
}

// TestReadersAreReportedWithoutReplicas: a lock that readers have is reported as held, not as not
// replicated.
func TestReadersAreReportedWithoutReplicas(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	readers, _ := openURL(t, server.URL())
	mustAcquire(t, readers, inMode(shared, "x"))
	store, _ := openURL(t, server.URL()+"?replicas=1&replica_timeout=1ms")
	for range 3 { // the first attempt reads the server's clock
		if _, err := store.Acquire(t.Context(), inMode(driver.Mode{}, "free")); !errors.Is(err, redislock.ErrNotReplicated) {
			t.Errorf("Acquire of a free lock: %v; want ErrNotReplicated", err)
		}
		_, err := store.Acquire(t.Context(), inMode(driver.Mode{}, "x"))
		if held, refused := errors.AsType[*driver.HeldError](err); !refused || !held.Mode.Shared {
			t.Errorf("Acquire beside a reader: %v; want that a shared holder has it", err)
		}
	}
}

// TestWaitOutlastsAMissingReplica: a waiter whose attempt no replica acknowledges undoes the
// attempt, and goes on waiting until a replica is back.
func TestWaitOutlastsAMissingReplica(t *testing.T) {
	t.Parallel()
	both := servers.RunGroup(t, 2, servers.Redis, append([]string{"--repl-diskless-sync-delay", "0"}, inMemory...)...)
	raw := clients(t, both.Addrs()...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var waiters []*waiter
	for _, protocol := range protocols {
		url := both[0].URL() + "?protocol=" + protocol
		holder, _ := openURL(t, url)
		_, waiting := openURL(t, url+"&replicas=1&replica_timeout=100ms")
		grant := acquireOne(t, holder, protocol)
		waiters = append(waiters, waitFor(ctx, waiting, protocol))
		channel := map[string]string{"redisson": "redisson_lock__channel:", "plain": "dlock:channel:"}[protocol] + "{" + protocol + "}"
		eventually(t, "the waiter waits", func() bool { return raw[0].PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
		if err := holder.Release(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		_, err := waiting.TryLock(ctx, "other-"+protocol)
		if !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, redislock.ErrNotReplicated) {
			t.Errorf("TryLock: %v; want ErrUnreachable and ErrNotReplicated", err)
		}
	}
	for _, w := range waiters {
		select {
		case <-w.done:
			t.Fatalf("the wait ended without a replica: %v", w.err)
		case <-time.After(time.Second): // several attempts
		}
	}
	host, port, err := net.SplitHostPort(both[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := raw[1].ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for _, w := range waiters {
		if err := w.within(t, 20*time.Second).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestReplicaTimeoutHasToBeBelowReadTimeout(t *testing.T) {
	_, err := redislock.Open(t.Context(), "redis://localhost?replicas=1&read_timeout=500ms", nil)
	if err == nil || !strings.Contains(err.Error(), "ReplicaTimeout") {
		t.Errorf("Open: %v; want a refusal: the wait for replicas would never end in time", err)
	}
}
