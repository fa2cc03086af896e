package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// blocking is a hook that, when armed, blocks the next command or pipeline until free is closed.
type blocking struct {
	counting
	armed atomic.Bool
	stuck chan struct{} // closed when a command is blocked
	free  chan struct{}
}

func (b *blocking) block() {
	if b.armed.Swap(false) {
		close(b.stuck)
		<-b.free
	}
}

func (b *blocking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.block()
		return next(ctx, cmd)
	}
}

func (b *blocking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.block()
		return next(ctx, cmds)
	}
}

// TestStuckConnectionDelaysNoOtherCall: a stuck connection delays only the calls on it, and their
// callers can leave.
func TestStuckConnectionDelaysNoOtherCall(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, "--appendonly", "no")
	for _, protocol := range []redislock.Protocol{redislock.Redisson, redislock.Plain} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { client.Close() })
		hook := &blocking{stuck: make(chan struct{}), free: make(chan struct{})}
		client.AddHook(hook)
		store, err := redislock.New(client, &redislock.Options{Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		free := sync.OnceFunc(func() { close(hook.free) })
		t.Cleanup(free)
		take := taker(t, store, "warm")
		take()

		hook.armed.Store(true)
		left := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // who has more time sends by itself
		t.Cleanup(cancel)
		go func() {
			_, err := store.Acquire(ctx, driver.Request{Name: "stuck", Owner: driver.NewOwner(), TTL: time.Minute})
			left <- err
		}()
		<-hook.stuck
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
		free()
	}
}

// TestExhaustedPoolDoesNotOutlastTheContext: the application uses all connections, and the client
// waits for one until PoolTimeout. A call with a short context returns when its context ends.
func TestExhaustedPoolDoesNotOutlastTheContext(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range []string{"redisson", "plain"} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: time.Minute, ContextTimeoutEnabled: true})
		t.Cleanup(func() { client.Close() })
		store, err := redislock.New(client, &redislock.Options{Protocol: protocolOf(protocol)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		acquireAndRelease(t, store, "warm "+protocol)
		conn := client.Conn()
		t.Cleanup(func() { conn.Close() })
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err = store.Acquire(ctx, driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
			t.Errorf("%s: Acquire with a context of 50ms = %v after %v; want DeadlineExceeded soon", protocol, err, took)
		}
		if err := conn.Close(); err != nil { // returns it to the pool
			t.Fatal(err)
		}
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
	store, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	acquireAndRelease(t, store, "warm")
	conns := make([]*redis.Conn, idle)
	for i := range conns {
		conns[i] = client.Conn()
		if err := conns[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil { // returns it to the pool
			t.Fatal(err)
		}
	}
	p.Blackhole()
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
