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
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// subscriptions counts the channels that match on a server.
func subscriptions(t *testing.T, raw *redis.Client, pattern string) int {
	t.Helper()
	channels, err := raw.PubSubChannels(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(channels)
}

func TestAllNamesShareOneSubscriberConnection(t *testing.T) {
	t.Parallel()
	const names = 200
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		_, holder := openURL(t, server.URL()+"?protocol="+protocol)
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		var leases []*dlock.Lease
		var waiters []*waiter
		for i := range names {
			name := fmt.Sprintf("%s-%d", protocol, i)
			lease, err := holder.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
			waiters = append(waiters, waitFor(t.Context(), client, name))
		}
		eventually(t, "all names are watched", func() bool { return subscriptions(t, raw, "*"+protocol+"-*") == names })
		list, err := raw.ClientList(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(list, fmt.Sprintf(" sub=%d ", names)); n != 1 {
			t.Errorf("%d connections are subscribed to all %d names; want one", n, names)
		}
		began := time.Now()
		for i, lease := range leases {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			mine := waiters[i].within(t, 10*time.Second) // the TTL is 30 s
			if err := mine.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%s: %d hand-overs in %v", protocol, names, time.Since(began))
		eventually(t, "no connection is subscribed without waiters", func() bool { return subscriptions(t, raw, "*"+protocol+"-*") == 0 })
	}
}

// TestWaiterIsWokenAfterLostConnections: the connections are cut before or while the lock is
// released.
func TestWaiterIsWokenAfterLostConnections(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		_, holder := openURL(t, server.URL()+"?protocol="+protocol)
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		for _, releasedMeanwhile := range []bool{false, true} {
			name := fmt.Sprintf("%s-%v", protocol, releasedMeanwhile)
			lease, err := holder.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			w := waitFor(t.Context(), client, name)
			eventually(t, "it is watched", func() bool { return subscriptions(t, raw, "*"+name+"*") == 1 })
			if err := raw.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
			if !releasedMeanwhile {
				eventually(t, "it is watched again", func() bool { return subscriptions(t, raw, "*"+name+"*") == 1 })
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.within(t, 10*time.Second).Unlock(t.Context()); err != nil { // the TTL is 30 s
				t.Error(err)
			}
		}
	}
}

// TestWaiterIsWokenAfterClusterFailover: the sharded subscription moves to the new master.
func TestWaiterIsWokenAfterClusterFailover(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, inMemory...)
	const name = "moved"
	_, holder := openURL(t, c.URL())
	store, _ := openURL(t, c.URL())
	_, client := openURL(t, c.URL())
	lease, err := holder.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	wakes := 0
	stop, err := store.(driver.Watcher).Watch(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner()}, func() {
		mu.Lock()
		defer mu.Unlock()
		wakes++
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	w := waitFor(t.Context(), client, name)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	old := agreedMaster(t, c, name)
	const channel = "redisson_lock__channel:{" + name + "}"
	before := clients(t, old.Addr())[0]
	eventually(t, "both are subscribed", func() bool {
		n, err := before.PubSubShardNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] == 2
	})
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	next, err := c.WaitFailover(ctx, name, old)
	if err != nil {
		t.Fatal(err)
	}
	raw := clients(t, next.Addr())[0]
	eventually(t, "the new master has the sharded subscription", func() bool {
		n, err := raw.PubSubShardNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] > 0
	})
	mu.Lock()
	wakesBefore := wakes
	mu.Unlock()
	eventually(t, "a message on the new master wakes", func() bool {
		if err := raw.SPublish(t.Context(), channel, "0").Err(); err != nil { // as Redisson does
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return wakes > wakesBefore
	})
	// The lock may have been lost with the old master.
	if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrNotHeld) {
		t.Error(err)
	}
	w.within(t, 20*time.Second)
}
