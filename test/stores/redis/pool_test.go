package redis

import (
	"bytes"
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

// TestExhaustedPool: the application uses all connections of the client, which waits
// for one until PoolTimeout. A call with a short context returns when that ends.
func TestExhaustedPool(t *testing.T) {
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
		taker(t, store, "warm "+protocol)()
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
		if err := conn.Close(); err != nil { // it goes back to the pool
			t.Fatal(err)
		}
	}
}

// TestReleaseDoesNotWaitForStuckAttempt: the first attempt of an owner is stuck in the
// client, and a second attempt is granted. The release of the grant does not wait for the
// first attempt. When that is carried out, it is undone.
func TestReleaseDoesNotWaitForStuckAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range []string{"redisson", "plain"} {
		hook := &holding{}
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()}, hook)
		taker(t, store, "warm "+protocol)()
		req := driver.Request{Name: "a " + protocol, Owner: driver.NewOwner(), TTL: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		stuck := hook.arm(req.Name, cancel)
		if _, err := store.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
			t.Fatal("the attempt that is stuck:", err)
		}
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		if err := store.Release(limited, grant); err != nil {
			t.Errorf("%s: Release = %v; want nil while an earlier attempt is stuck", protocol, err)
		}
		taker(t, store, req.Name)() // the lock is free
		close(stuck.free)
		<-stuck.ended
		eventually(t, "the stuck attempt is undone", func() bool {
			_, held, err := store.Find(t.Context(), req.Name)
			return err == nil && !held
		})
	}
}

// TestUndoDoesNotOvertakeRelease: the answer to the first attempt of an owner gets lost,
// and its second attempt is granted. The release is slow on its way to the server. It
// finds the lock nevertheless: the first attempt is not undone meanwhile.
func TestUndoDoesNotOvertakeRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range []string{"redisson", "plain"} {
		hook := &holding{}
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()}, hook)
		taker(t, store, "warm "+protocol)()
		req := driver.Request{Name: "a " + protocol, Owner: driver.NewOwner(), TTL: time.Minute}
		lost := p.LoseReply(func(request []byte) bool { return bytes.Contains(request, []byte(req.Name)) }, true)
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnreachable) {
			t.Fatal("the attempt without an answer:", err)
		}
		<-lost
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var slow *heldCommand
		slow = hook.arm(req.Name, func() { time.AfterFunc(500*time.Millisecond, func() { close(slow.free) }) })
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("%s: Release of a lock that is held = %v", protocol, err)
		}
	}
}
