//go:build linux

package stories

import (
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
	return func() (*stage.Server, error) { return stage.Start(kind, query, args...) }
}

// elsewhere returns a kind of server whose instances are changed: in another folder, or at another address.
func elsewhere(kind *servers.Kind, change func(in *servers.Instance)) *servers.Kind {
	k := *kind
	k.Args = func(in servers.Instance) []string {
		change(&in)
		return kind.Args(in)
	}
	if kind.Init != nil {
		k.Init = func(in servers.Instance) ([]servers.Command, error) {
			change(&in)
			return kind.Init(in)
		}
	}
	if kind.Configure != nil {
		k.Configure = func(in servers.Instance) error {
			change(&in)
			return kind.Configure(in)
		}
	}
	return &k
}

func onRedis(cases ...Case) Place { return Place{"redis", run(servers.Redis, ""), cases} }

func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }
