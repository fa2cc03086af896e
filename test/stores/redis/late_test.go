package redis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// abandonAfter is long enough for a call to be sent. It is so short that a worker sends the call,
// and the caller can leave.
const abandonAfter = 3 * time.Second

// mentions returns a condition for requests that contain the text.
func mentions(text string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

// attempts are the ways to acquire. Each makes one attempt with a TTL of one minute, for the first
// request or for both.
var attempts = map[string]struct {
	redisson bool // only in this protocol
	make     func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error
}{
	"Acquire": {make: attemptAs(func(*driver.Request) {})},
	"AcquireAll": {make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		_, err := store.AcquireAll(ctx, reqs)
		return err
	}},
	"fair":   {redisson: true, make: attemptAs(func(req *driver.Request) { req.Fair, req.Queue = true, true })},
	"shared": {redisson: true, make: attemptAs(func(req *driver.Request) { req.Mode = shared })},
	"permit": {redisson: true, make: attemptAs(func(req *driver.Request) { req.Mode = permits })},
}

// attemptAs acquires the first request after change.
func attemptAs(change func(*driver.Request)) func(context.Context, *redislock.Store, []driver.Request) error {
	return func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		req := reqs[0]
		change(&req)
		_, err := store.Acquire(ctx, req)
		return err
	}
}

// TestLateAttempt: the network delivers an attempt after its owner has released. If the connection
// is still open, Release waits for the attempt. If the connection broke, the store undoes the
// attempt in the background.
func TestLateAttempt(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	for name, way := range map[string]struct {
		options redis.Options
		limit   time.Duration // the caller leaves after it, or when the attempt is delayed; zero if the caller stays
		open    bool          // the connection stays open
	}{
		"the caller leaves":                           {redis.Options{}, abandonAfter, true},
		"the caller leaves and the connection breaks": {redis.Options{ReadTimeout: time.Second}, 700 * time.Millisecond, false},
		"the connection breaks":                       {redis.Options{ReadTimeout: 500 * time.Millisecond}, 0, false},
		"the client keeps the deadline":               {redis.Options{ContextTimeoutEnabled: true}, 500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachProtocol(t, func(t *testing.T, protocol string) {
				p := proxy.Run(t, server.Addr())
				options := way.options
				options.Addr = p.Addr()
				store := newStore(t, protocol, &options)
				for kind, attempt := range attempts {
					if attempt.redisson && protocol != "redisson" {
						continue
					}
					t.Run(kind, func(t *testing.T) {
						warm := twoRequests(t.Name() + "-warm")
						eventually(t, "the server knows the scripts", func() bool {
							return attempt.make(t.Context(), store, warm) == nil
						})
						releaseAll(t, store, warm)
						deliver := make(chan struct{})
						deliverNow := sync.OnceFunc(func() { close(deliver) })
						defer deliverNow()
						var reqs []driver.Request
						var passed <-chan struct{}
						round := 0
						eventually(t, "an attempt is sent before its caller leaves", func() bool { // a machine may stall meanwhile
							round++
							reqs = twoRequests(fmt.Sprintf("%s-%d", t.Name(), round))
							ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(way.limit, time.Hour))
							defer cancel()
							var sent atomic.Bool
							passed = p.OnRequest(mentions(reqs[0].Owner.Hex()), func(*proxy.Conn) {
								sent.Store(true)
								if way.limit > 0 {
									cancel()
								}
								<-deliver
							})
							err := attempt.make(ctx, store, reqs)
							if err == nil || errors.Is(err, driver.ErrHeld) {
								t.Fatalf("an attempt that does not arrive: %v", err)
							}
							return sent.Load()
						})
						if way.open {
							time.AfterFunc(50*time.Millisecond, deliverNow)
						}
						releaseAll(t, store, reqs)
						left := func() int64 {
							return raw.Exists(t.Context(), reqs[0].Name, reqs[1].Name, "redisson_lock_queue:{"+reqs[0].Name+"}").Val()
						}
						if way.open {
							select {
							case <-passed:
							default:
								t.Error("Release returned while the attempt was still on its way")
							}
							if n := left(); n > 0 {
								t.Errorf("%d keys are left when Release has returned", n)
							}
						}
						deliverNow()
						<-passed
						mustSettle(t, p)
						eventually(t, "the late attempt is undone", func() bool { return left() == 0 })
					})
				}
			})
		})
	}
}

// twoRequests returns requests for the names NAME-a and NAME-b.
func twoRequests(name string) []driver.Request {
	return []driver.Request{inMode(driver.Mode{}, name+"-a"), inMode(driver.Mode{}, name+"-b")}
}

// releaseAll releases what the owners have until the server has answered.
func releaseAll(t *testing.T, store driver.Store, reqs []driver.Request) {
	t.Helper()
	for _, req := range reqs {
		eventually(t, "Release is answered", func() bool {
			err := store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner})
			return err == nil || errors.Is(err, driver.ErrNotHeld)
		})
	}
}

// mustSettle waits until the server has answered all requests that the proxy has forwarded.
func mustSettle(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	if !p.Settle(await.Limit) {
		t.Fatal("the server does not answer")
	}
}

// TestReleaseDoesNotWaitForStuckAttempt: the first attempt of an owner is stuck, and a second attempt
// is granted. The release of the grant does not wait for the first attempt, which is undone when it is
// carried out.
func TestReleaseDoesNotWaitForStuckAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()})
		acquireAndRelease(t, store, "warm "+protocol)
		req := inMode(driver.Mode{}, "a "+protocol)
		ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
		defer cancel()
		deliver := make(chan struct{})
		passed := p.OnRequest(mentions(req.Name), func(*proxy.Conn) { cancel(); <-deliver })
		if _, err := store.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
			t.Fatal("the attempt that is stuck:", err)
		}
		grant := mustAcquire(t, store, req)
		limited, cancel := context.WithTimeout(t.Context(), abandonAfter)
		defer cancel()
		if err := store.Release(limited, grant); err != nil {
			t.Errorf("Release = %v; want nil while an earlier attempt is stuck", err)
		}
		acquireAndRelease(t, store, req.Name) // the lock is free
		close(deliver)
		<-passed
		mustSettle(t, p)
		eventually(t, "the stuck attempt is undone", func() bool {
			_, held, err := store.Find(t.Context(), req.Name)
			return err == nil && !held
		})
	})
}

// TestUndoDoesNotOvertakeRelease: the answer to the first attempt of an owner is lost, and its
// second attempt is granted. A slow release still finds the lock: the first attempt is not undone
// meanwhile.
func TestUndoDoesNotOvertakeRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()})
		acquireAndRelease(t, store, "warm "+protocol)
		req := inMode(driver.Mode{}, "a "+protocol)
		lost := p.LoseReply(mentions(req.Name), true)
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnreachable) {
			t.Fatal("the attempt without an answer:", err)
		}
		<-lost
		grant := mustAcquire(t, store, req)
		p.OnRequest(mentions(req.Name), func(*proxy.Conn) { time.Sleep(500 * time.Millisecond) })
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("Release of a lock that is held = %v", err)
		}
	})
}
