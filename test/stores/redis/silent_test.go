package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestAttemptInTheQueueIsNotSent: while many pipelines hang, the context of an attempt ends in the
// queue of the process. The attempt is marked as not sent, so that the next call does not wait for an undo.
func TestAttemptInTheQueueIsNotSent(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxy.Run(t, server.Addr())
		store, _ := openURL(t, "redis://"+p.Addr()+"?protocol="+protocol)
		acquireAndRelease(t, store, protocol)
		p.Hold()
		var sent sync.WaitGroup
		attempt := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := store.Acquire(ctx, inMode(driver.Mode{}, "queued"))
			return err
		}
		await.Until(t, "an attempt that ends in the queue is marked as not sent", func() bool {
			sent.Go(func() { _ = attempt(2 * time.Second) }) // until there are more than a process sends at a time
			err := attempt(50 * time.Millisecond)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire: %v; want DeadlineExceeded", err)
			}
			return driver.Unchanged(err)
		})
		sent.Wait()
		p.Deliver()
	})
}

// TestFirstLockOfASlowServer: the first lock of a server takes at most four round trips, however
// slow the server is.
func TestFirstLockOfASlowServer(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxy.Run(t, server.Addr())
		p.Delay(100 * time.Millisecond)
		must(t, clients(t, server.Addr())[0].ScriptFlush(t.Context()).Err())
		var requests atomic.Int64
		p.OnRequest(func([]byte) bool { requests.Add(1); return false }, func(*proxy.Conn) {})
		store, _ := openURL(t, "redis://"+p.Addr()+"?protocol="+protocol)
		client := dlock.New(store, &dlock.Options{RequestTimeout: time.Minute})
		t.Cleanup(func() { client.Close() })
		lease, err := client.TryLock(t.Context(), protocol)
		must(t, err)
		if n := requests.Load(); n > 4 { // the mode and the lock, each on a new connection
			t.Errorf("the first lock took %d round trips; want four", n)
		}
		unlock(t, lease)
	})
}

// TestRedlockSaysWhyMembersFail: the error of a Redlock whose members refuse connections says so in
// one line, although the client repeats a dial for longer than a member may take.
func TestRedlockSaysWhyMembersFail(t *testing.T) {
	t.Parallel()
	var members []*redis.Client
	for range 3 {
		server := servers.Run(t, servers.Redis, inMemory...)
		members = append(members, clients(t, server.Addr())...)
		must(t, server.Stop())
	}
	store, err := redlock.New(members, nil)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	client := dlock.New(store, nil)
	t.Cleanup(func() { client.Close() })
	eventually(t, "the error says that connections are refused", func() bool {
		_, err := client.TryLock(t.Context(), "a")
		if !errors.Is(err, dlock.ErrUnreachable) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("TryLock: %v; want ErrUnreachable in one line", err)
		}
		return strings.Count(err.Error(), "connection refused") >= 2 // of a majority
	})
}

// TestCloseOfASilentServerIsBounded: Close of a client that holds locks takes up to twice its
// RequestTimeout, and Close of the store about two seconds, however long the timeouts of the
// store's own client are.
func TestCloseOfASilentServerIsBounded(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	const limit = time.Second
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxy.Run(t, server.Addr())
		store, err := redislock.Open(t.Context(), "redis://"+p.Addr()+"?"+patient+"&protocol="+protocol, nil)
		must(t, err)
		client := dlock.New(store, &dlock.Options{RequestTimeout: limit})
		for _, name := range []string{"a", "b"} {
			if _, err := client.Lock(t.Context(), protocol+name); err != nil {
				t.Fatal(err)
			}
		}
		p.Hold()
		began := time.Now()
		err = client.Close()
		if took := time.Since(began); !errors.Is(err, dlock.ErrUnreachable) || took > 20*time.Second {
			t.Errorf("Close of the client: %v after %v; want ErrUnreachable", err, took)
		}
		began = time.Now()
		_ = store.Close()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("Close of the store took %v", took)
		}
	})
}
