package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// subscriberConnections lists the connections that have subscriptions.
func subscriberConnections(t *testing.T, raw *redis.Client) (ids []string) {
	t.Helper()
	list, err := raw.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	must(t, err)
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

// TestForbiddenChannelDisturbsNoOther: waiters on other channels are woken as before.
func TestForbiddenChannelDisturbsNoOther(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	if err := raw.Do(t.Context(), "acl", "setuser", "picky", "on", ">pw", "~*", "+@all", "resetchannels",
		"&redisson_lock__channel:{mine*").Err(); err != nil {
		t.Fatal(err)
	}
	store, _ := openURL(t, "redis://picky:pw@"+server.Addr())
	woken, stop := watch(t, store, driver.Request{Name: "mine", Owner: driver.NewOwner()})
	defer stop()
	before := subscriberConnections(t, raw)
	for range 20 {
		_, err := store.(driver.Watcher).Watch(t.Context(), driver.Request{Name: "yours", Owner: driver.NewOwner()}, func() {})
		if err == nil || !strings.Contains(err.Error(), "permission") {
			t.Fatalf("Watch of a forbidden channel: %v; want a refusal", err)
		}
		_, another := watch(t, store, driver.Request{Name: "mine too", Owner: driver.NewOwner()})
		another()
	}
	if after := subscriberConnections(t, raw); len(before) != 1 || len(after) != 1 || after[0] != before[0] {
		t.Errorf("the connection of the waiters was %v and is %v after refusals; want one and the same", before, after)
	}
	must(t, raw.Publish(t.Context(), "redisson_lock__channel:{mine}", "0").Err())
	await.Event(t, woken, "a wake-up")
}

// TestClusterWithoutShardedChannels: on a server without them, as before Redis 7, the general
// subscription suffices.
func TestClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, append([]string{"--rename-command", "ssubscribe", ""}, inMemory...)...)
	_, holder := openURL(t, c.URL())
	store, client := openURL(t, c.URL())
	woken, stop := watch(t, store, driver.Request{Name: "old", Owner: driver.NewOwner(), Fair: true})
	defer stop()
	lease := mustLock(t, holder, "old")
	w := waitFor(t.Context(), client, "old")
	unlock(t, lease)
	await.Event(t, woken, "a wake-up")
	w.within(t, 10*time.Second)
}

// TestWaiterWithoutPermissionToSubscribePolls: such a user can also release.
func TestWaiterWithoutPermissionToSubscribePolls(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	must(t, raw.Do(t.Context(), "acl", "setuser", "deaf", "on", ">pw", "~*", "+@all", "resetchannels").Err())
	for _, protocol := range protocols {
		url := "redis://deaf:pw@" + server.Addr() + "?protocol=" + protocol
		store, holder := openURL(t, url)
		_, client := openURL(t, url)
		lease, err := holder.Lock(t.Context(), protocol)
		if err != nil {
			t.Fatalf("a user without channels cannot lock: %v", err)
		}
		_, err = store.(driver.Watcher).Watch(t.Context(), driver.Request{Name: protocol, Owner: driver.NewOwner()}, func() {})
		if err == nil || !strings.Contains(err.Error(), "permission") {
			t.Errorf("Watch: %v; want a refusal at once", err)
		}
		w := waitFor(t.Context(), client, protocol)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatalf("a user without channels cannot unlock: %v", err)
		}
		unlock(t, w.within(t, 10*time.Second))
		findings, err := store.(driver.Diagnoser).Diagnose(t.Context())
		must(t, err)
		expect(t, findings, "scripts", driver.LevelWarning, "wakes no waiter")
	}
}
