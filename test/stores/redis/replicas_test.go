package redis

import (
	"context"
	"errors"
	"fmt"
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
// timeout. What they release leaves nothing.
func TestMissingReplicasRefuseTheLock(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	eachProtocol(t, func(t *testing.T, protocol string) {
		const limit = time.Second
		url := server.URL() + "?read_timeout=1m&protocol=" + protocol
		store, _ := openURL(t, url+"&replicas=1&replica_timeout="+limit.String())
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				req := inMode(driver.Mode{}, fmt.Sprintf("%s-%d", protocol, i))
				if _, err := store.Acquire(t.Context(), req); !errors.Is(err, redislock.ErrNotReplicated) {
					t.Errorf("Acquire: %v; want ErrNotReplicated", err)
				}
				if err := store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}); err != nil {
					t.Errorf("Release: %v", err)
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
		grant := acquireOne(t, plain, "held-"+protocol)
		if _, err := store.Acquire(t.Context(), inMode(driver.Mode{}, grant.Name)); !errors.Is(err, driver.ErrHeld) {
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

// TestNotReplicatedLockIsLeftToItsOwner: the store does not release a lock that it could not replicate.
// The owner may try again, and a release that the server carries out late would end its next grant.
func TestNotReplicatedLockIsLeftToItsOwner(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		url := server.URL() + "?protocol=" + protocol
		store, client := openURL(t, url+"&replicas=1&replica_timeout=10ms")
		other, _ := openURL(t, url)
		requests := []driver.Request{inMode(driver.Mode{}, protocol), inMode(driver.Mode{}, protocol+"2")}
		for range 2 {
			if _, err := store.Acquire(t.Context(), requests[0]); !errors.Is(err, redislock.ErrNotReplicated) {
				t.Errorf("Acquire: %v; want ErrNotReplicated", err)
			}
			if _, err := store.(driver.BatchAcquirer).AcquireAll(t.Context(), requests); !errors.Is(err, redislock.ErrNotReplicated) {
				t.Errorf("AcquireAll: %v; want ErrNotReplicated", err)
			}
			for _, req := range requests {
				if _, err := other.Acquire(t.Context(), inMode(driver.Mode{}, req.Name)); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Acquire of %q by another owner: %v; want ErrHeld", req.Name, err)
				}
			}
		}
		for _, req := range requests {
			mustRelease(t, store, driver.Grant{Name: req.Name, Owner: req.Owner})
			mustRelease(t, other, mustAcquire(t, other, inMode(driver.Mode{}, req.Name)))
		}

		// A client releases it when its caller gets the error.
		if _, err := client.TryLock(t.Context(), protocol); !errors.Is(err, redislock.ErrNotReplicated) {
			t.Errorf("TryLock: %v; want ErrNotReplicated", err)
		}
		eventually(t, "the lock is released", func() bool {
			grant, err := other.Acquire(t.Context(), inMode(driver.Mode{}, protocol))
			return err == nil && other.Release(t.Context(), grant) == nil
		})
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
		free := inMode(driver.Mode{}, "free")
		if _, err := store.Acquire(t.Context(), free); !errors.Is(err, redislock.ErrNotReplicated) {
			t.Errorf("Acquire of a free lock: %v; want ErrNotReplicated", err)
		}
		mustRelease(t, store, driver.Grant{Name: free.Name, Owner: free.Owner})
		_, err := store.Acquire(t.Context(), inMode(driver.Mode{}, "x"))
		if held, refused := errors.AsType[*driver.HeldError](err); !refused || !held.Mode.Shared {
			t.Errorf("Acquire beside a reader: %v; want that a shared holder has it", err)
		}
	}
}

// TestWaitOutlastsAMissingReplica: a waiter whose attempt no replica acknowledges goes on
// waiting until a replica is back.
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
		mustRelease(t, holder, grant)
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
	follow(t, raw[1], both[0])
	for _, w := range waiters {
		unlock(t, w.within(t, 20*time.Second))
	}
}

func TestReplicaTimeoutHasToBeBelowReadTimeout(t *testing.T) {
	_, err := redislock.Open(t.Context(), "redis://localhost?replicas=1&read_timeout=500ms", nil)
	if err == nil || !strings.Contains(err.Error(), "ReplicaTimeout") {
		t.Errorf("Open: %v; want a refusal: the wait for replicas would never end in time", err)
	}
}
