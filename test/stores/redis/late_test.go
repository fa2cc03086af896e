package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// delaying is a hook that, when armed, delays the next command or pipeline about a name before the
// client sends it.
type delaying struct {
	counting
	next atomic.Pointer[delayedCommand] // nil if not armed
}

// delayedCommand is a command that is delayed until free is closed.
type delayedCommand struct {
	name        string
	leave       func() // called when the command is delayed
	free, ended chan struct{}
}

// arm makes the hook delay the next command about name, and then call leave.
func (h *delaying) arm(name string, leave func()) *delayedCommand {
	c := &delayedCommand{name, leave, make(chan struct{}), make(chan struct{})}
	h.next.Store(c)
	return c
}

// abandonAfter is long enough for a call to be sent. It is so short that a worker sends the call,
// and the caller can leave.
const abandonAfter = 3 * time.Second

// freeSoon lets the command go after a release had time to overtake it.
func (c *delayedCommand) freeSoon() { time.AfterFunc(50*time.Millisecond, func() { close(c.free) }) }

func (h *delaying) delay(cmds ...redis.Cmder) (ended func()) {
	c := h.next.Load()
	about := func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(c.name)) }
	if c == nil || !slices.ContainsFunc(cmds, about) || !h.next.CompareAndSwap(c, nil) {
		return func() {}
	}
	c.leave()
	<-c.free
	return func() { close(c.ended) }
}

func (h *delaying) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer h.delay(cmd)()
		return next(ctx, cmd)
	}
}

func (h *delaying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.delay(cmds...)()
		return next(ctx, cmds)
	}
}

// attempts are the ways to acquire. Each makes one attempt with a TTL of one minute, for the first
// request or for both.
var attempts = map[string]struct {
	redisson bool // only in this protocol
	make     func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error
}{
	"Acquire": {make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		_, err := store.Acquire(ctx, reqs[0])
		return err
	}},
	"AcquireAll": {make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		_, err := store.AcquireAll(ctx, reqs)
		return err
	}},
	"fair": {redisson: true, make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		req := reqs[0]
		req.Fair, req.Queue = true, true
		_, err := store.Acquire(ctx, req)
		return err
	}},
	"shared": {redisson: true, make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		req := reqs[0]
		req.Mode.Shared = true
		_, err := store.Acquire(ctx, req)
		return err
	}},
	"permit": {redisson: true, make: func(ctx context.Context, store *redislock.Store, reqs []driver.Request) error {
		req := reqs[0]
		req.Mode.Limit = 2
		_, err := store.Acquire(ctx, req)
		return err
	}},
}

// eachAttempt calls try for every way to acquire that the protocol offers.
func eachAttempt(t *testing.T, protocol string, try func(t *testing.T, attempt func(ctx context.Context, store *redislock.Store, reqs []driver.Request, arm func()) error)) {
	t.Helper()
	for name, kind := range attempts {
		if kind.redisson && protocol != "redisson" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			try(t, func(ctx context.Context, store *redislock.Store, reqs []driver.Request, arm func()) error {
				arm()
				return kind.make(ctx, store, reqs)
			})
		})
	}
}

// twoRequests returns requests for the names NAME-a and NAME-b.
func twoRequests(name string) []driver.Request {
	return []driver.Request{
		{Name: name + "-a", Owner: driver.NewOwner(), TTL: time.Minute},
		{Name: name + "-b", Owner: driver.NewOwner(), TTL: time.Minute},
	}
}

// TestReleaseDoesNotOvertakeItsAttempt: an attempt is sent after its caller has left. The owner's
// Release does not return before the server has answered the attempt, so that no lock and no place
// in a queue remains.
func TestReleaseDoesNotOvertakeItsAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())
	eachProtocol(t, func(t *testing.T, protocol string) {
		hook := &delaying{}
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()}, hook)
		eachAttempt(t, protocol, func(t *testing.T, attempt func(context.Context, *redislock.Store, []driver.Request, func()) error) {
			for round := range 3 {
				reqs := twoRequests(fmt.Sprintf("%s-%d", t.Name(), round))
				var delayed *delayedCommand
				if round == 0 { // the server learns the scripts
					if err := attempt(t.Context(), store, reqs, func() {}); err != nil {
						t.Fatal(err)
					}
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
					err := attempt(ctx, store, reqs, func() { delayed = hook.arm(reqs[0].Name, cancel) })
					cancel()
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("an attempt that is delayed: %v; want the end of its context", err)
					}
					delayed.freeSoon()
				}
				for _, req := range reqs {
					if err := store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
						t.Fatal(err)
					}
				}
				if delayed != nil {
					<-delayed.ended
				}
				for _, req := range reqs {
					for _, key := range []string{req.Name, "redisson_lock_queue:{" + req.Name + "}"} {
						if n := raw[0].Exists(t.Context(), key).Val(); n != 0 {
							t.Errorf("round %d: the abandoned attempt left %q", round, key)
						}
					}
				}
			}
		})
	})
}

// TestAbandonedTryLockLeavesNoLock: a TryLock is delayed until its context has ended. It leaves no
// lock, neither for the next Lock nor after Close.
func TestAbandonedTryLockLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	eachProtocol(t, func(t *testing.T, protocol string) {
		hook := &delaying{}
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()}, hook)
		client := dlock.New(store, nil)
		warm := func(name string) { // so that the scripts are loaded
			lease, err := client.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		warm(protocol)
		_ = store.Release(t.Context(), driver.Grant{Name: protocol, Owner: driver.NewOwner()}) // finds nothing
		const rounds = 10
		name := func(i int) string { return fmt.Sprintf("%s-%d", protocol, i) }
		for i := range rounds {
			ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
			delayed := hook.arm(name(i), cancel)
			_, err := client.TryLock(ctx, name(i))
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("TryLock: %v; want the end of its context", err)
			}
			delayed.freeSoon()
			if i%2 == 0 { // the next Lock waits until the attempt is undone
				began := time.Now()
				warm(name(i))
				if took := time.Since(began); took > dlock.DefaultTTL/2 {
					t.Errorf("the next Lock took %v", took)
				}
			}
			<-delayed.ended
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		left := 0
		for i := range rounds {
			left += int(raw.Exists(t.Context(), name(i)).Val())
		}
		if left > 0 {
			t.Errorf("%d of %d abandoned attempts left a lock", left, rounds)
		}
	})
}

// TestLateAttempt: the network delivers an attempt after its owner has released. If the connection
// is still open, Release waits for the attempt. If the connection broke, the store undoes the
// attempt in the background.
func TestLateAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
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
				eachAttempt(t, protocol, func(t *testing.T, attempt func(context.Context, *redislock.Store, []driver.Request, func()) error) {
					warm := twoRequests(t.Name() + "-warm")
					eventually(t, "the server knows the scripts", func() bool {
						return attempt(t.Context(), store, warm, func() {}) == nil
					})
					releaseAll := func(reqs []driver.Request) {
						for _, req := range reqs {
							eventually(t, "Release is answered", func() bool {
								err := store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner})
								return err == nil || errors.Is(err, driver.ErrNotHeld)
							})
						}
					}
					releaseAll(warm)
					deliver := make(chan struct{})
					deliverNow := sync.OnceFunc(func() { close(deliver) })
					defer deliverNow()
					var reqs []driver.Request
					var passed <-chan struct{}
					round := 0
					eventually(t, "an attempt is sent before its caller leaves", func() bool { // a machine may stall meanwhile
						round++
						reqs = twoRequests(fmt.Sprintf("%s-%d", t.Name(), round))
						ctx, cancel := t.Context(), func() {}
						if way.limit > 0 {
							ctx, cancel = context.WithTimeout(ctx, way.limit)
						}
						defer cancel()
						var sent atomic.Bool
						err := attempt(ctx, store, reqs, func() {
							owner := []byte(reqs[0].Owner.Hex())
							passed = p.OnRequest(func(request []byte) bool { return bytes.Contains(request, owner) },
								func(*proxy.Conn) { sent.Store(true); cancel(); <-deliver })
						})
						if err == nil || errors.Is(err, driver.ErrHeld) {
							t.Fatalf("an attempt that does not arrive: %v", err)
						}
						return sent.Load()
					})
					if way.open {
						time.AfterFunc(50*time.Millisecond, deliverNow)
					}
					releaseAll(reqs)
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
					if !p.Settle(20 * time.Second) {
						t.Fatal("the server does not answer")
					}
					eventually(t, "the late attempt is undone", func() bool { return left() == 0 })
				})
			})
		})
	}
}
