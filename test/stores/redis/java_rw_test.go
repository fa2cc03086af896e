package redis

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestReadersThatSubscribeToAReplicaAreWoken: with subscriptionMode SLAVE, Redisson subscribes to
// replicas, and the master does not count these subscribers. They get both messages all the same:
// '0' wakes one thread of a process, and '1' wakes its other readers.
func TestReadersThatSubscribeToAReplicaAreWoken(t *testing.T) {
	t.Parallel()
	both := servers.RunGroup(t, 2, servers.Redis, append([]string{"--repl-diskless-sync-delay", "0"}, inMemory...)...)
	replica := clients(t, both[1].Addr())[0]
	follow(t, replica, both[0])
	awaitReplicas(t, both[0].Addr(), 1)
	sub := replica.Subscribe(t.Context(), "redisson_rwlock:{x}")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil { // the confirmation
		t.Fatal(err)
	}
	messages := sub.Channel()
	store, _ := openURL(t, both[0].URL())
	woken := func(what string) {
		t.Helper()
		var got []string
		for limit := time.After(10 * time.Second); len(got) < 2; {
			select {
			case message := <-messages:
				got = append(got, message.Payload)
			case <-limit:
				t.Fatalf("after %s the replica published %q; want 0 and 1", what, got)
			}
		}
		if !slices.Equal(got, []string{"0", "1"}) {
			t.Errorf("after %s the replica published %q; want 0 and 1", what, got)
		}
	}
	mustRelease(t, store, mustAcquire(t, store, inMode(driver.Mode{}, "x")))
	woken("a release")
	mustRelease(t, store, mustAcquire(t, store, inMode(permits, "x")))
	woken("the release of the last permit")
	grant := mustAcquire(t, store, inMode(driver.Mode{}, "x"))
	must(t, store.(driver.Downgrader).Downgrade(t.Context(), grant))
	woken("a downgrade")
	must(t, store.(driver.Breaker).Break(t.Context(), "x", grant.Token))
	woken("a break")
}

// TestReaderOfJavaWithNegativeThreadCounts: lockAsync(threadId) of Redisson accepts every number in
// the place of a thread. The share of such a reader is kept while it lasts, is listed, and is
// removed when it has expired.
func TestReaderOfJavaWithNegativeThreadCounts(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	const thread = "0d2a3a52-7f0b-4a3c-9d2b-0123456789ab:-3"
	timeoutKey := readInJava(t, raw, "x", thread)
	if info, found := listed(t, store, "x")["x"]; !found || info.Holder.Note != thread {
		t.Errorf("the reader of Java is listed as %+v, %v", info, found)
	}
	short := inMode(shared, "x")
	short.TTL = 10 * time.Second
	mustAcquire(t, store, short)
	mustRelease(t, store, mustAcquire(t, store, inMode(shared, "x")))
	if left := raw.PTTL(t.Context(), "x").Val(); left < 30*time.Second {
		t.Errorf("the lock expires in %v, the share of Java in %v", left, raw.PTTL(t.Context(), timeoutKey).Val())
	}
	mustRelease(t, store, driver.Grant{Name: "x", Owner: short.Owner})
	if _, err := store.Acquire(t.Context(), inMode(driver.Mode{}, "x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("an exclusive request beside a reader of Java: %v; want ErrHeld", err)
	}
	must(t, raw.Del(t.Context(), timeoutKey).Err()) // as if it had expired
	mustAcquire(t, store, inMode(driver.Mode{}, "x"))
}

// readInJava writes the share of a reader of Redisson that lasts for a minute, and returns the key
// that expires with it.
func readInJava(t *testing.T, raw *redis.Client, name, thread string) (timeoutKey string) {
	t.Helper()
	timeoutKey = "{" + name + "}:" + thread + ":rwlock_timeout:1"
	if _, err := raw.TxPipelined(t.Context(), func(java redis.Pipeliner) error {
		java.HSet(t.Context(), name, "mode", "read", thread, 1)
		java.Set(t.Context(), timeoutKey, 1, time.Minute)
		java.PExpire(t.Context(), name, time.Minute)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return timeoutKey
}

// mustBeRefused demands that another holder refuses a request.
func mustBeRefused(t *testing.T, store driver.Store, req driver.Request) {
	t.Helper()
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of %q: %v; want ErrHeld", req.Name, err)
	}
}

// endInJava removes a lock, and publishes as the last holder of Redisson's RReadWriteLock does.
func endInJava(t *testing.T, raw *redis.Client, name, message string) {
	t.Helper()
	if _, err := raw.TxPipelined(t.Context(), func(java redis.Pipeliner) error {
		java.Del(t.Context(), name)
		java.Publish(t.Context(), "redisson_rwlock:{"+name+"}", message)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLateReaderOfJavaWakesAWriter: a reader of Java that comes while an exclusive request waits for
// readers of dlock, and leaves last, wakes the waiter. Java publishes on a channel to which the
// waiter does not subscribe before it knows of that reader. A reader of dlock whose share has expired,
// and whose field is left, does not count.
func TestLateReaderOfJavaWakesAWriter(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	for name, end := range map[string]func(driver.Grant) error{
		"release": func(g driver.Grant) error { return store.Release(t.Context(), g) },
		"break":   func(g driver.Grant) error { return store.(driver.Breaker).Break(t.Context(), g.Name, g.Token) },
	} {
		dead := mustAcquire(t, store, inMode(shared, name))
		last := inMode(shared, name)
		last.TTL /= 2 // less than the reader of Java has, so that its end does not clean up
		reader := mustAcquire(t, store, last)
		req := inMode(driver.Mode{}, name)
		req.Queue = true
		woken, stop := watch(t, store, req)
		defer stop()
		mustBeRefused(t, store, req)
		readInJava(t, raw, name, "0d2a3a52-7f0b-4a3c-9d2b-0123456789ab:7")
		if n := raw.Del(t.Context(), "{"+name+"}:"+dead.Owner.Hex()+":rwlock_timeout:1").Val(); n != 1 {
			t.Fatalf("%d shares have expired; want 1", n)
		}
		must(t, end(reader))
		await.Event(t, woken, "the "+name+" of the last reader of dlock")
		mustBeRefused(t, store, req)
		await.Event(t, woken, "the subscription to the channel of Java")
		endInJava(t, raw, name, "0")
		await.Event(t, woken, "the last reader of Java")
		mustAcquire(t, store, req)
	}
}

// TestLateWriterOfJavaWakesTheNextWaiter: a writer of Java takes the lock before the queue, and the
// first waiter gives up. The next one, which has not asked since, is woken by Java.
func TestLateWriterOfJavaWakesTheNextWaiter(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	var queue []driver.Request
	for range 3 {
		req := inMode(driver.Mode{}, "x")
		req.Fair, req.Queue = true, true
		queue = append(queue, req)
	}
	holder := mustAcquire(t, store, queue[0])
	woken, stop := watch(t, store, queue[2])
	defer stop()
	mustBeRefused(t, store, queue[1])
	mustBeRefused(t, store, queue[2])
	mustRelease(t, store, holder)
	if _, err := raw.TxPipelined(t.Context(), func(java redis.Pipeliner) error {
		java.HSet(t.Context(), "x", "mode", "write", "0d2a3a52-7f0b-4a3c-9d2b-0123456789ab:7:write", 1)
		java.PExpire(t.Context(), "x", time.Minute)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: queue[1].Owner}); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("Release of a waiter: %v; want ErrNotHeld", err)
	}
	await.Event(t, woken, "the waiter ahead that gave up")
	mustBeRefused(t, store, queue[2])
	await.Event(t, woken, "the subscription to the channel of Java")
	endInJava(t, raw, "x", "1")
	await.Event(t, woken, "the writer of Java")
	mustAcquire(t, store, queue[2])
}
