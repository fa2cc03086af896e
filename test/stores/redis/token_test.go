package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// rises demands that the next token is larger than the last one.
func rises(t *testing.T, last *uint64, next uint64, when string) {
	t.Helper()
	if next <= *last {
		t.Errorf("token %d %s, after %d; want a larger one", next, when, *last)
	}
	*last = next
}

func TestTokensRise(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.WithClock(servers.Redis))
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			defer func() {
				if err := server.SetClock(0); err != nil {
					t.Error(err)
				}
			}()
			name := "a-" + protocol
			store, _ := openURL(t, server.URL()+"?protocol="+protocol)
			other, _ := openURL(t, server.URL()+"?protocol="+protocol)
			take, takeOther := taker(t, store, name), taker(t, other, name)
			var last uint64
			grants := func(first uint64, when string) {
				rises(t, &last, first, when)
				last += store.Traits().TokenStep - 1
			}
			for range 20 {
				rises(t, &last, take(), "from one store")
				rises(t, &last, takeOther(), "from another")
			}
			must(t, raw.FlushAll(t.Context()).Err())
			rises(t, &last, take(), "after a flush")
			for range 3 { // Redisson's fenced lock, or another dlock
				n, err := increment(t.Context(), raw, protocol, name, store.Traits().TokenStep)
				must(t, err)
				rises(t, &last, n, "from another program")
			}
			rises(t, &last, take(), "after another program's")
			for range 3 { // the counter is ahead of the estimate
				grants(take(), "again")
			}

			// The counter is ahead of the clock after the clock was set back.
			must(t, server.SetClock(-time.Hour))
			fresh, _ := openURL(t, server.URL()+"?protocol="+protocol)
			takeFresh := taker(t, fresh, name)
			for range 3 {
				grants(takeFresh(), "by a clock that was set back")
				grants(take(), "by the estimate from before")
			}
			req := inMode(driver.Mode{}, name)
			grant := mustAcquire(t, fresh, req)
			rises(t, &last, grant.Token, "by a clock that was set back")
			again, err := fresh.Acquire(t.Context(), req)
			if err != nil || again.Token != grant.Token {
				t.Errorf("asking again: token %d, %v; want %d as before", again.Token, err, grant.Token)
			}
			if errs := fresh.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Error(errs)
			}
			mustRelease(t, fresh, grant)

			// After the counter was lost, tokens rise only if the clock is not behind the last
			// token. That is what clock-bound means.
			must(t, server.SetClock(time.Hour))
			must(t, raw.FlushAll(t.Context()).Err())
			late, _ := openURL(t, server.URL()+"?protocol="+protocol)
			rises(t, &last, acquireAndRelease(t, late, name), "after a flush, by a clock that is ahead")
		})
	}
}

// TestTokensRiseWhenMastersClocksDiffer: the clock of one master of a cluster does not affect the
// tokens of another master, which rise also after it has lost its data.
func TestTokensRiseWhenMastersClocksDiffer(t *testing.T) {
	t.Parallel()
	ahead, right := servers.Run(t, withClock(), inMemory...), servers.Run(t, withClock(), inMemory...)
	must(t, ahead.SetClock(time.Minute))
	eachProtocol(t, func(t *testing.T, protocol string) {
		open := func() (*redislock.Store, *redis.ClusterClient) {
			client := halves(t, ahead, right)
			return storeOver(t, client, &redislock.Options{Protocol: protocolOf(protocol)}), client
		}
		store, client := open()
		other := taker(t, store, nameOn(t, client, ahead, protocol))
		name := nameOn(t, client, right, protocol)
		take := taker(t, store, name)
		var last uint64
		for range 3 {
			other()
			rises(t, &last, take(), "while another master's clock is ahead")
		}
		counters := clients(t, right.Addr())[0]
		must(t, counters.Del(t.Context(), counterOf(protocol, name)).Err())
		fresh, _ := open()
		rises(t, &last, acquireAndRelease(t, fresh, name), "after the counter was lost")
	})
}

// halves returns a client of Cluster for two servers, each with half of the slots.
func halves(t *testing.T, first, second *servers.Server) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: first.Addr()}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: second.Addr()}}},
		}, nil
	}})
	t.Cleanup(func() { client.Close() })
	return client
}

// nameOn returns a name with that prefix whose lock is on the server.
func nameOn(t *testing.T, client *redis.ClusterClient, server *servers.Server, prefix string) string {
	t.Helper()
	for i := range 1000 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		node, err := client.MasterForKey(t.Context(), name)
		must(t, err)
		if strings.HasSuffix(server.Addr(), node.Options().Addr) { // a client from halves knows only the ports
			return name
		}
	}
	t.Fatalf("no name is on %s", server.Addr())
	return ""
}

// increment draws a token as other programs do.
func increment(ctx context.Context, raw *redis.Client, protocol, name string, tokenStep uint64) (uint64, error) {
	if protocol == "plain" {
		n, err := raw.ZIncrBy(ctx, "dlock:token:{"+name+"}", float64(tokenStep), "t").Result()
		return uint64(n), err
	}
	return raw.Incr(ctx, "redisson_lock_token:{"+name+"}").Uint64()
}

// TestRestartKeepsSyncedLocks: with appendfsync always, locks and tokens survive a crash. Without a
// file they do not, but the next token is larger.
func TestRestartKeepsSyncedLocks(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		for _, keeps := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, data kept: %v", protocol, keeps), func(t *testing.T) {
				t.Parallel()
				var args []string
				if !keeps {
					args = inMemory
				}
				server := servers.Run(t, servers.Redis, args...)
				store, _ := openURL(t, server.URL()+"?protocol="+protocol)
				grant := acquireOne(t, store, "a")
				must(t, server.Kill())
				must(t, server.Restart())
				contender, client := openURL(t, server.URL()+"?protocol="+protocol)
				second, err := contender.Acquire(t.Context(), inMode(driver.Mode{}, "a"))
				switch {
				case keeps && err == nil:
					t.Error("a contender got the lock after the restart")
				case keeps:
					if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
						t.Errorf("the holder cannot renew after the restart: %v", errs)
					}
					mustRelease(t, store, grant)
					lease, err := client.TryLock(t.Context(), "a")
					if err != nil || lease.Token() <= grant.Token {
						t.Errorf("after the release: %v, %v; want a larger token than %d", lease, err, grant.Token)
					}
				case err != nil:
					t.Errorf("the server forgot the lock, and a contender is refused: %v", err)
				case second.Token <= grant.Token:
					t.Errorf("the second holder has token %d, the first %d; want a larger one", second.Token, grant.Token)
				}
			})
		}
	}
}

// TestTokensStayBehindTheClock: a crowd of goroutines that hand a lock over, and one whose
// locks cannot be handed over, use tokens more slowly than the clock counts microseconds. So a
// server that has lost its counter goes on with larger tokens.
func TestTokensStayBehindTheClock(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	eachProtocol(t, func(t *testing.T, protocol string) {
		client := dlock.New(newStore(t, protocol, &redis.Options{Addr: server.Addr()}), nil)
		defer client.Close()
		for name, ttls := range map[string][]time.Duration{"equal": {time.Minute}, "different": {time.Minute, time.Hour}} {
			last := crowd(t, name+protocol, 16, ttls, client)
			now, err := raw.Time(t.Context()).Result()
			must(t, err)
			const ahead = 5000 // microseconds
			if limit := uint64(now.UnixMicro()) + ahead; last > limit {
				t.Errorf("with %s TTLs: token %d is %d ahead of the clock", name, last, last-limit)
			}
		}
	})
}

// crowd lets goroutines of each client lock a name again and again for a second, and returns the last token.
func crowd(t *testing.T, name string, goroutines int, ttls []time.Duration, clients ...*dlock.Client) uint64 {
	t.Helper()
	var last atomic.Uint64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, client := range clients {
		for i := range goroutines {
			all.Go(func() {
				for ctx.Err() == nil {
					if lease, err := client.Lock(ctx, name, dlock.WithTTL(ttls[i%len(ttls)])); err == nil {
						last.Store(lease.Token())
						unlock(t, lease)
					}
				}
			})
		}
	}
	all.Wait()
	return last.Load()
}
