package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestStuckConnectionDelaysNoOtherCall: a stuck connection delays only the calls on it, and their
// callers can leave.
func TestStuckConnectionDelaysNoOtherCall(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()})
		acquireAndRelease(t, store, "warm")
		stuck, free := make(chan struct{}), make(chan struct{})
		p.OnRequest(mentions("stuck"), func(*proxy.Conn) { close(stuck); <-free })
		left := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // who has more time sends by itself
		t.Cleanup(cancel)
		go func() {
			_, err := store.Acquire(ctx, inMode(driver.Mode{}, "stuck"))
			left <- err
		}()
		<-stuck
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { acquireAndRelease(t, store, fmt.Sprintf("%v-%d", protocol, i)) })
		}
		wg.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%v: 1000 calls behind a stuck one took %v", protocol, took)
		}
		if err := <-left; !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the stuck caller: %v; want the error of its context", protocol, err)
		}
		close(free)
	}
}

// TestExhaustedPoolDoesNotOutlastTheContext: the application uses all connections, and the client
// waits for one until PoolTimeout. A call with a short context returns when its context ends.
func TestExhaustedPoolDoesNotOutlastTheContext(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: time.Minute, ContextTimeoutEnabled: true})
		t.Cleanup(func() { client.Close() })
		store := storeOver(t, client, &redislock.Options{Protocol: protocolOf(protocol)})
		acquireAndRelease(t, store, "warm "+protocol)
		conn := client.Conn()
		t.Cleanup(func() { conn.Close() })
		must(t, conn.Ping(t.Context()).Err())
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := store.Acquire(ctx, inMode(driver.Mode{}, "a"))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
			t.Errorf("%s: Acquire with a context of 50ms = %v after %v; want DeadlineExceeded soon", protocol, err, took)
		}
		must(t, conn.Close()) // returns it to the pool
	}
}

// TestDeadConnectionsWithoutReadTimeoutAreReplaced: a client without ReadTimeout has more dead
// connections than calls may be under way. Later calls use new connections.
func TestDeadConnectionsWithoutReadTimeoutAreReplaced(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	p := proxy.Run(t, server.Addr())
	const idle = 20
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: -1, PoolSize: 2 * idle})
	t.Cleanup(func() { client.Close() })
	store := storeOver(t, client, nil)
	acquireAndRelease(t, store, "warm")
	conns := make([]*redis.Conn, idle)
	for i := range conns {
		conns[i] = client.Conn()
		must(t, conns[i].Ping(t.Context()).Err())
	}
	for _, conn := range conns {
		must(t, conn.Close()) // returns it to the pool
	}
	p.Blackhole()
	req := inMode(driver.Mode{}, "a")
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
