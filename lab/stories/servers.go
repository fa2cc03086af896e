//go:build linux

package stories

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// onServers are the stories on servers that the laboratory starts, in order.
var onServers = []Story{
	twoStepExpiry, releaseAny, checkThenDelete, clientClocks, outlivesTTL, watchdogAfterPause,
	pauseBeforeWrite, lostAnswer, sentinelForgets, clusterForgets, sentinelWaits, memberForgets, delayedRestart, redlockClock,
	redlockSlow, sessionWhilePaused, ghostNode, herd, leaderKilled, deadWaiter, memcachedEvicts, rowForever, rowClientClock,
	vanishedTransaction, replicaWithoutRow, oppositeOrder, deadInQueue, fullServer, evictingServer, fullDisk, slowNetwork,
	silentPartition, oneWayPartition,
}

// startStores start the servers on which the stories with guards can be played.
var startStores = map[string]func() (*stage.Server, error){
	"redis":     run(servers.Redis, ""),
	"etcd":      run(servers.Etcd, ""),
	"zookeeper": run(servers.ZooKeeper, ""),
	"memcached": run(servers.Memcached, ""),
	"mysql":     run(servers.MariaDB, ""),
	"postgres":  run(servers.Postgres, ""),
}

// run starts one server.
func run(kind *servers.Kind, query string, args ...string) func() (*stage.Server, error) {
	return func() (*stage.Server, error) {
		server, err := servers.Start(kind, args...)
		if err != nil {
			return nil, err
		}
		return describe(kind, server, server.Addr(), query), nil
	}
}

// describe returns a server that listens at addr.
func describe(kind *servers.Kind, server *servers.Server, addr, query string) *stage.Server {
	url := func(addrs []string) string { return kind.URL(addrs[0]) + query }
	s := &stage.Server{URL: url, Addrs: []string{addr}, Stop: server.Stop, Any: server}
	if kind == servers.Redis {
		client := newRedis(addr)
		s.Held = func(ctx context.Context) (bool, error) {
			n, err := client.Exists(ctx, stage.LockName).Result()
			return n > 0, err
		}
		s.Stop = func() error { return errors.Join(client.Close(), server.Stop()) }
	}
	return s
}

func onRedis(cases ...Case) Place { return Place{"redis", run(servers.Redis, ""), cases} }

func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }
