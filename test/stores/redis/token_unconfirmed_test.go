package redis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// losing is a hook that, when armed, loses the answer to the next pipeline.
type losing struct {
	counting
	armed atomic.Bool
}

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if l.armed.Swap(false) {
			for _, cmd := range cmds {
				cmd.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// TestTokenRisesAfterALostAnswer: the counter of a plain lock was ahead of the proposed token, and
// the answer that says so was lost. The owner asks again and gets a new token.
func TestTokenRisesAfterALostAnswer(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	hook := &losing{}
	client.AddHook(hook)
	store, err := redislock.New(client, &redislock.Options{Protocol: redislock.Plain})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	take := taker(t, store, "a")
	for range 5 { // the counter is there and the server's clock is known
		take()
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	if err := raw.ZAdd(t.Context(), "dlock:token:{a}", redis.Z{Score: float64(ahead), Member: "t"}).Err(); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute}
	hook.armed.Store(true)
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnreachable) {
		t.Fatalf("Acquire whose answer is lost: %v; want ErrUnreachable", err)
	}
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if grant.Token <= ahead {
		t.Errorf("token %d; want more than the counter's %d", grant.Token, ahead)
	}
	again, err := store.Acquire(t.Context(), req)
	if err != nil || again.Token != grant.Token {
		t.Errorf("asking again: token %d, %v; want %d as before", again.Token, err, grant.Token)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Error(err)
	}
	if next := take(); next <= grant.Token {
		t.Errorf("the next token is %d, after %d", next, grant.Token)
	}
}

// TestTokenRisesAfterAnAbandonedAttempt: the caller of a plain lock leaves before it gets the
// answer that the counter was ahead of the proposed token. The owner asks again and gets a new
// token.
func TestTokenRisesAfterAnAbandonedAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	p := proxy.Run(t, server.Addr())
	store := newStore(t, "plain", &redis.Options{Addr: p.Addr()})
	take := taker(t, store, "a")
	for range 5 { // the counter is there and the server's clock is known
		take()
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	if err := raw.ZAdd(t.Context(), "dlock:token:{a}", redis.Z{Score: float64(ahead), Member: "t"}).Err(); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
	defer cancel()
	p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte(req.Owner.Hex())) }, func(*proxy.Conn) {
		p.Hold(proxy.Replies)
		go func() {
			p.Held(proxy.Replies, 20*time.Second)
			cancel()
		}()
	})
	if _, err := store.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire whose answer is on its way: %v; want the end of its context", err)
	}
	p.Deliver()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if grant.Token <= ahead {
		t.Errorf("token %d; want more than the counter's %d", grant.Token, ahead)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Error(err)
	}
}
