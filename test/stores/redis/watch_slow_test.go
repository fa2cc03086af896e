package redis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestWaiterTriesWhileItsSubscriptionIsSlow: the waiter acquires the lock as soon as it is free.
func TestWaiterTriesWhileItsSubscriptionIsSlow(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	var slow, ended atomic.Bool
	dialing := make(chan struct{}, 1)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slow.Load() {
				select {
				case dialing <- struct{}{}:
				default:
				}
				<-ctx.Done()
				ended.Store(true)
				return nil, ctx.Err()
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}})
	t.Cleanup(func() { client.Close() })
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	locks := dlock.New(store, nil)
	t.Cleanup(func() { locks.Close() })
	lease, err := locks.Lock(t.Context(), "other") // uses the pool's only connection
	if err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	_, holder := openURL(t, server.URL())
	held, err := holder.Lock(t.Context(), "slow")
	if err != nil {
		t.Fatal(err)
	}
	w := waitFor(t.Context(), locks, "slow")
	<-dialing
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if w.err != nil || ended.Load() {
		t.Errorf("Lock: %v; the connection for messages was given up before: %v", w.err, ended.Load())
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
