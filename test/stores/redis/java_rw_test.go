package redis

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
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
