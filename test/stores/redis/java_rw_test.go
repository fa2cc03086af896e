package redis

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
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
	host, port, err := net.SplitHostPort(both[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
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
	if err := store.(driver.Downgrader).Downgrade(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	woken("a downgrade")
	if err := store.(driver.Breaker).Break(t.Context(), "x", grant.Token); err != nil {
		t.Fatal(err)
	}
	woken("a break")
}

// TestReaderOfJavaWithNegativeThreadCounts: lockAsync(threadId) of Redisson accepts every number in
// the place of a thread. The share of such a reader is kept while it lasts, is listed, and is
// removed when it has expired.
func TestReaderOfJavaWithNegativeThreadCounts(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
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
	if err := raw.Del(t.Context(), timeoutKey).Err(); err != nil { // as if it had expired
		t.Fatal(err)
	}
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
