package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestConformance runs the kit on every topology, and in both protocols where scripts differ.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		start     func(testing.TB, ...string) topology
		protocols []string
	}{
		"single":   {single, []string{"redisson", "plain"}},
		"sentinel": {sentinel, []string{"redisson"}},
		"cluster":  {cluster, []string{"redisson", "plain"}},
		"shard":    {shard, []string{"redisson"}},
		"TLS":      {secure, []string{"redisson"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology := c.start(t, inMemory...)
			for _, protocol := range c.protocols {
				t.Run(protocol, func(t *testing.T) { conform(t, topology, "protocol="+protocol) })
			}
		})
	}
}

// TestRedlockConformance runs before the parallel tests: five servers, each with a time limit per
// call, are enough load.
func TestRedlockConformance(t *testing.T) { conform(t, independent(t), "") }

// topology is one or several servers. The functions that start one take arguments of the servers.
type topology struct {
	url     string
	servers []*redis.Client // all that may have keys
}

func single(t testing.TB, args ...string) topology {
	server := servers.Run(t, servers.Redis, args...)
	return topology{server.URL(), clients(t, server.Addr())}
}

func sentinel(t testing.TB, args ...string) topology {
	s := servers.RunSentinel(t, servers.SentinelOptions{Args: args})
	return topology{s.URL() + "?replicas=1", clients(t, s.Servers[0].Addr())}
}

func cluster(t testing.TB, args ...string) topology {
	c := servers.RunCluster(t, args...)
	return topology{c.URL(), clients(t, c.Nodes.Addrs()...)}
}

func secure(t testing.TB, args ...string) topology {
	s := servers.RunRedisTLS(t, args...)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: s.Config,
		Username: servers.Anything.Name, Password: servers.Anything.Password})
	t.Cleanup(func() { client.Close() })
	return topology{s.URL() + "?ca=" + url.QueryEscape(s.CAFile), []*redis.Client{client}}
}

func independent(t testing.TB, _ ...string) topology {
	group := servers.RunGroup(t, 5, servers.Redis, inMemory...)
	return topology{"redlock://" + strings.Join(group.Addrs(), ","), clients(t, group.Addrs()...)}
}

func conform(t *testing.T, top topology, query string) {
	t.Helper()
	s := bundle.Store{
		URL:       top.url,
		Open:      open,
		Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, top.servers) },
	}
	switch {
	case query == "":
	case strings.Contains(s.URL, "?"):
		s.URL += "&" + query
	default:
		s.URL += "?" + query
	}
	ttl := 400 * time.Millisecond * slowdown
	if strings.HasPrefix(top.url, "redlock:") {
		ttl = 4 * memberTimeout
	}
	if len(top.servers) == 1 && strings.HasPrefix(s.URL, "redis://") {
		s.Addr = top.servers[0].Options().Addr
	}
	s.Conform(t, drivertest.Config{
		TTL:      ttl,
		Parallel: 8 / slowdown,
		Open:     func(ctx context.Context) (driver.Store, error) { return openPersistent(ctx, s.URL) },
	})
}

// persistent tries again after a split vote, which may refuse a free lock to all contenders. To tell it from a lock
// that is held, it asks for the holder: all contenders of the kit look the same.
type persistent struct{ *redlock.Store }

func (p persistent) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	for tries := range 20 {
		if grant, err = p.Store.Acquire(ctx, req); !errors.Is(err, driver.ErrHeld) {
			break
		}
		if _, held, unknown := p.Find(ctx, req.Name); held || unknown != nil || backoff.Sleep(ctx, rand.N(time.Duration(tries+1)*10*time.Millisecond)) != nil {
			break
		}
	}
	return grant, err
}

func openPersistent(ctx context.Context, url string) (driver.Store, error) {
	store, err := open(ctx, url)
	if s, ok := store.(*redlock.Store); ok && err == nil {
		return persistent{s}, nil
	}
	return store, err
}

// leftovers returns all keys except the counters of tokens.
func leftovers(ctx context.Context, servers []*redis.Client) (left []string, err error) {
	for _, server := range servers {
		keys, err := server.Keys(ctx, "*").Result()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, "redisson_lock_token:") && !strings.HasPrefix(key, "dlock:token:") {
				left = append(left, fmt.Sprintf("key %q on %s", key, server.Options().Addr))
			}
		}
	}
	return left, nil
}
