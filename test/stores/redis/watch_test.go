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
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// subscriptions counts the channels that match on a server.
func subscriptions(t *testing.T, raw *redis.Client, pattern string) int {
	t.Helper()
	channels, err := raw.PubSubChannels(t.Context(), pattern).Result()
	must(t, err)
	return len(channels)
}

func TestAllNamesShareOneSubscriberConnection(t *testing.T) {
	t.Parallel()
	const names = 200
	server, raw := run(t)
	for _, protocol := range protocols {
		_, holder := openURL(t, server.URL()+"?protocol="+protocol)
		_, client := openURL(t, server.URL()+"?protocol="+protocol)
		var leases []*dlock.Lease
		var waiters []*waiter
		for i := range names {
			name := fmt.Sprintf("%s-%d", protocol, i)
			lease := mustLock(t, holder, name)
			leases = append(leases, lease)
			waiters = append(waiters, waitFor(t.Context(), client, name))
		}
		eventually(t, "all names are watched", func() bool { return subscriptions(t, raw, "*"+protocol+"-*") == names })
		list, err := raw.ClientList(t.Context()).Result()
		must(t, err)
		if n := strings.Count(list, fmt.Sprintf(" sub=%d ", names)); n != 1 {
			t.Errorf("%d connections are subscribed to all %d names; want one", n, names)
		}
		began := time.Now()
		for i, lease := range leases {
			unlock(t, lease)
			mine := waiters[i].within(t, 10*time.Second) // the TTL is 30 s
			unlock(t, mine)
		}
		t.Logf("%s: %d hand-overs in %v", protocol, names, time.Since(began))
		eventually(t, "no connection is subscribed without waiters", func() bool { return subscriptions(t, raw, "*"+protocol+"-*") == 0 })
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
	lease := mustLock(t, holder, name)
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
	must(t, old.Kill())
	next, err := c.WaitFailover(ctx, name, old)
	must(t, err)
	raw := clients(t, next.Addr())[0]
	eventually(t, "the new master has the sharded subscription", func() bool {
		n, err := raw.PubSubShardNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] > 0
	})
	mu.Lock()
	wakesBefore := wakes
	mu.Unlock()
	eventually(t, "a message on the new master wakes", func() bool {
		must(t, raw.SPublish(t.Context(), channel, "0").Err()) // as Redisson does
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

// TestWaiterTriesWhileItsSubscriptionIsSlow: the waiter acquires the lock as soon as it is free.
func TestWaiterTriesWhileItsSubscriptionIsSlow(t *testing.T) {
	t.Parallel()
	server, _ := run(t)
	p := proxy.Run(t, server.Addr())
	store, _ := openURL(t, "redis://"+p.Addr())
	client := dlock.New(store, &dlock.Options{RequestTimeout: time.Hour})
	defer client.Close()
	_, holder := openURL(t, server.URL())
	held := mustLock(t, holder, "slow", dlock.WithTTL(time.Hour))
	subscribes, let := make(chan struct{}), make(chan struct{})
	defer close(let)
	p.OnRequest(mentions("subscribe"), func(*proxy.Conn) { close(subscribes); <-let })
	w := waitFor(t.Context(), client, "slow", dlock.WithTTL(time.Hour))
	await.Event(t, subscribes, "the waiter subscribes")
	unlock(t, held)
	unlock(t, w.within(t, await.Limit))
}
