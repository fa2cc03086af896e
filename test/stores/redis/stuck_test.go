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
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// blocking is a hook that keeps the next command, or pipeline, on its connection
// until it is let go.
type blocking struct {
	counting
	armed atomic.Bool
	stuck chan struct{} // closed when one is
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

// TestStuckConnection: one connection that is stuck holds up nobody but those
// whose calls are on it, and those can leave.
func TestStuckConnection(t *testing.T) {
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
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := store.Acquire(ctx, driver.Request{Name: "stuck", Owner: driver.NewOwner(), TTL: time.Minute})
			left <- err
		}()
		<-hook.stuck
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { taker(t, store, fmt.Sprintf("%v-%d", protocol, i))() })
		}
		wg.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%v: 1000 calls behind a stuck one took %v", protocol, took)
		}
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the stuck caller: %v; want DeadlineExceeded", protocol, err)
		}
		free()
	}
}
