package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// subscriberConnections lists the connections that have subscriptions.
func subscriberConnections(t *testing.T, raw *redis.Client) (ids []string) {
	t.Helper()
	list, err := raw.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

// TestOneForbiddenChannel does not disturb those who wait on others.
func TestOneForbiddenChannel(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
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
		t.Errorf("the connection of those who wait was %v and is %v after refusals; want one and the same", before, after)
	}
	if err := raw.Publish(t.Context(), "redisson_lock__channel:{mine}", "0").Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Error("no wake-up within 10 s on a channel that is allowed")
	}
}

// TestClusterWithoutShardedChannels, as before Redis 7: the general subscription
// does.
func TestClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, append([]string{"--rename-command", "ssubscribe", ""}, inMemory...)...)
	_, holder := openURL(t, c.URL())
	store, client := openURL(t, c.URL())
	woken, stop := watch(t, store, driver.Request{Name: "old", Owner: driver.NewOwner(), Fair: true})
	defer stop()
	lease, err := holder.Lock(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	w := waitFor(t.Context(), client, "old")
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Error("no wake-up within 10 s of a release")
	}
	w.within(t, 10*time.Second)
}
