package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestSilentConnectionsWithoutReadTimeout: a client without ReadTimeout has more
// connections that died in silence than calls may be under way. Calls go on with new
// connections all the same.
func TestSilentConnectionsWithoutReadTimeout(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	p := proxy.Run(t, server.Addr())
	const idle = 20
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: -1, PoolSize: 2 * idle})
	t.Cleanup(func() { client.Close() })
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	taker(t, store, "warm")()
	conns := make([]*redis.Conn, idle)
	for i := range conns {
		conns[i] = client.Conn()
		if err := conns[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil { // it goes back to the pool
			t.Fatal(err)
		}
	}
	p.Silence()
	req := driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute}
	attempts := 0
	eventually(t, "an attempt is answered", func() bool {
		attempts++
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := store.Acquire(ctx, req)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrUnreachable) {
			t.Fatal(err)
		}
		return err == nil
	})
	if attempts <= 16 {
		t.Errorf("the attempt %d was answered; want more on dead connections", attempts)
	}
}
