package redis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestConformance runs the kit on every topology, in both protocols.
func TestConformance(t *testing.T) {
	for name, start := range map[string]func(testing.TB) topology{
		"single":   single,
		"sentinel": sentinel,
		"cluster":  cluster,
		"shard":    shard,
		"TLS":      secure,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology := start(t)
			for _, protocol := range []string{"redisson", "plain"} {
				t.Run(protocol, func(t *testing.T) { conform(t, topology, "protocol="+protocol) })
			}
		})
	}
}

// TestRedlockConformance runs before the parallel tests: five servers and what
// asks them, each within a limit, are enough at a time.
func TestRedlockConformance(t *testing.T) { conform(t, redlock(t), "") }

// topology is one or several servers.
type topology struct {
	url     string
	servers []*redis.Client // all that may have keys
}

func single(t testing.TB) topology {
	server := servers.Run(t, servers.Redis)
	return topology{server.URL(), clients(t, server.Addr())}
}

func sentinel(t testing.TB) topology {
	s := servers.RunSentinel(t, servers.SentinelOptions{})
	return topology{s.URL() + "?replicas=1", clients(t, s.Servers[0].Addr())}
}

func cluster(t testing.TB) topology {
	c := servers.RunCluster(t)
	return topology{c.URL(), clients(t, c.Nodes.Addrs()...)}
}

func secure(t testing.TB) topology {
	s := servers.RunRedisTLS(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: s.Config,
		Username: servers.Anything.Name, Password: servers.Anything.Password})
	t.Cleanup(func() { client.Close() })
	return topology{s.URL() + "?ca=" + url.QueryEscape(s.CAFile), []*redis.Client{client}}
}

func redlock(t testing.TB) topology {
	group := servers.RunGroup(t, 5, servers.Redis, "--appendonly", "no")
	return topology{"redlock://" + strings.Join(group.Addrs(), ","), clients(t, group.Addrs()...)}
}

func clients(t testing.TB, addrs ...string) (list []*redis.Client) {
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		list = append(list, client)
	}
	return list
}

// memberTimeout is long because the machine that runs the tests is busy.
const memberTimeout = 375 * time.Millisecond * slowdown

// open opens any of the URLs.
func open(ctx context.Context, url string) (driver.Store, error) {
	hosts, found := strings.CutPrefix(url, "redlock://")
	if !found {
		return redislock.Open(ctx, url, nil)
	}
	hosts, query, _ := strings.Cut(hosts, "?")
	var q quorumStore
	for host := range strings.SplitSeq(hosts, ",") {
		member, err := redislock.Open(ctx, "redis://"+host+"?protocol=plain&"+query, nil)
		if err != nil {
			return nil, errors.Join(err, q.closeMembers())
		}
		q.members = append(q.members, member)
	}
	store, err := quorum.New(q.members, &quorum.Options{MemberTimeout: memberTimeout})
	if err != nil {
		return nil, errors.Join(err, q.closeMembers())
	}
	q.Store = store
	return &q, nil
}

// quorumStore closes its members too.
type quorumStore struct {
	*quorum.Store
	members []driver.Store
	once    sync.Once
	err     error
}

func (q *quorumStore) Close() error {
	q.once.Do(func() { q.err = errors.Join(q.Store.Close(), q.closeMembers()) })
	return q.err
}

func (q *quorumStore) closeMembers() (err error) {
	for _, m := range q.members {
		err = errors.Join(err, m.Close())
	}
	return err
}

func conform(t *testing.T, top topology, query string) {
	t.Helper()
	url := top.url
	switch {
	case query == "":
	case strings.Contains(url, "?"):
		url += "&" + query
	default:
		url += "?" + query
	}
	ttl, parallel := 400*time.Millisecond*slowdown, 8/slowdown
	if strings.HasPrefix(top.url, "redlock:") {
		ttl = 4 * memberTimeout
	}
	var delayed func(context.Context) (driver.Store, func() func(), error)
	if len(top.servers) == 1 && strings.HasPrefix(url, "redis://") {
		addr := top.servers[0].Options().Addr
		delayed = proxy.Delayed(t, addr, func(ctx context.Context, at string) (driver.Store, error) {
			return open(ctx, strings.Replace(url, addr, at, 1))
		})
	}
	drivertest.Run(t, drivertest.Config{
		TTL:      ttl,
		Delayed:  delayed,
		Parallel: parallel,
		Open:     func(ctx context.Context) (driver.Store, error) { return open(ctx, url) },
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
		Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, top.servers) },
	})
}

// leftovers are all keys but the counters of tokens.
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
