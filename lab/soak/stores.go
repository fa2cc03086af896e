package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// store is a store that can be soaked.
type store struct {
	name      string
	ttl       time.Duration
	processes int
	clients   int // in each process
	faults    []string
	start     func() (*place, error)
}

// place is where the processes of a soak lock.
type place struct {
	addrs   []string // each process has a proxy of its own in front of each
	url     func(addrs []string) string
	members servers.Group
	clock   time.Duration // the offset of the server's clock
	leader  func(ctx context.Context) (*servers.Server, error)
	entries func(ctx context.Context) (int, error) // that the store keeps; nil if there is none after the processes
	// lingers is for how long after the end of a process the store may keep what is not a lock.
	lingers time.Duration
	// janitor makes the janitor of the store run at once, which otherwise removes what dead
	// processes left behind every ten minutes. Nil if the store needs none.
	janitor func(ctx context.Context) error
	stop    func() error
}

var (
	processFaults = []string{"kill", "pause"}
	// cutFaults do not end a connection.
	cutFaults     = slices.Concat(processFaults, []string{"cut", "cut requests", "cut replies", "delay", "reorder"})
	networkFaults = slices.Concat(cutFaults, []string{"lose reply", "reset", "hang", "server pause"})
)

// with adds faults to those of the network.
func with(faults ...string) []string { return slices.Concat(networkFaults, faults) }

func without(fault string, faults []string) []string {
	return slices.DeleteFunc(faults, func(other string) bool { return other == fault })
}

// stores are all stores. Which faults a store has to bear follows from its promises: memcached
// forgets its locks when it restarts, a lock of session or forupdate ends with its connection,
// and a clock that steps forward ends every lock that expires by it. Clocks of etcd and
// ZooKeeper only run forward: they are monotonic. A failover needs several members. A leader of
// etcd that was stopped and goes on may revoke leases that are alive.
var stores = []store{
	{"memory", time.Second, 1, 4, []string{"pause"}, startMemory},
	{"sqlite", time.Second, 4, 1, processFaults, startSQLite},
	{"redis", time.Second, 4, 1, with("restart", "clock"), startRedis("redisson")},
	{"redis-plain", time.Second, 4, 1, with("restart", "clock"), startRedis("plain")},
	{"redlock", 2 * time.Second, 4, 1, with("restart"), startRedlock},
	{"memcached", 2 * time.Second, 4, 1, with(), startMemcached},
	{"mysql", time.Second, 4, 1, with("restart"), startSQL(servers.MariaDB, "")},
	{"postgres", time.Second, 4, 1, with("restart", "clock"), startSQL(movable(servers.Postgres), "")},
	{"session", 2 * time.Second, 4, 1, cutFaults, startSQL(servers.Postgres, "scheme=session")},
	{"forupdate", 2 * time.Second, 4, 1, cutFaults, startSQL(servers.MariaDB, "scheme=forupdate")},
	{"etcd", 3 * time.Second, 4, 1, with("restart"), startEtcd},
	{"etcd-cluster", 3 * time.Second, 4, 1, without("server pause", with("restart", "failover")), startEtcdCluster},
	{"zookeeper", 3 * time.Second, 4, 1, with("restart"), startZooKeeper},
	{"zookeeper-ensemble", 3 * time.Second, 4, 1, with("restart", "failover"), startEnsemble},
}

// Stores returns the names of all stores.
func Stores() (names []string) {
	for _, s := range stores {
		names = append(names, s.name)
	}
	return names
}

// Faults returns the faults of a store.
func Faults(name string) []string {
	s, _ := storeNamed(name)
	return s.faults
}

func storeNamed(name string) (store, error) {
	i := slices.IndexFunc(stores, func(s store) bool { return s.name == name })
	if i < 0 {
		return store{}, fmt.Errorf("unknown store %q (want all or one of %s)", name, strings.Join(Stores(), ", "))
	}
	return stores[i], nil
}

func startMemory() (*place, error) {
	return &place{url: func([]string) string { return "" }, stop: func() error { return nil }}, nil
}

func startSQLite() (*place, error) {
	folder, err := os.MkdirTemp("", "dlock-soak-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "locks.db")
	p := &place{
		url:     func([]string) string { return "sqlite://" + file },
		entries: func(ctx context.Context) (n int, err error) { return n, sqliteRow(ctx, file, countRows, &n) },
		stop:    func() error { return os.RemoveAll(folder) },
	}
	p.lingers, p.janitor = sqlLingers, func(ctx context.Context) error {
		return p.runJanitor(ctx, sqliteRow(ctx, file, "UPDATE dlock_meta SET value = 0 WHERE key = 'swept' RETURNING 0", new(int)))
	}
	return p, nil
}

// one starts a single server. change completes the place.
func one(kind *servers.Kind, query string, args []string, change func(p *place, s *servers.Server)) (*place, error) {
	server, err := servers.Start(kind, args...)
	if err != nil {
		return nil, err
	}
	p := &place{addrs: []string{server.Addr()}, members: servers.Group{server}, stop: server.Stop,
		url: func(addrs []string) string { return withQuery(kind.URL(strings.Join(addrs, ",")), query) }}
	change(p, server)
	return p, nil
}

func withQuery(url, query string) string {
	switch {
	case query == "":
		return url
	case strings.Contains(url, "?"):
		return url + "&" + query
	}
	return url + "?" + query
}

// movable returns a kind of server whose clock can be moved. It is killed at the end, because
// a signal handler may read the clock while the library that moves it is at work.
func movable(kind *servers.Kind) *servers.Kind {
	moved := servers.WithClock(kind)
	moved.StopSignal = syscall.SIGKILL
	return moved
}

func startRedis(protocol string) func() (*place, error) {
	return func() (*place, error) {
		return one(movable(servers.Redis), "protocol="+protocol, nil, func(p *place, s *servers.Server) {
			p.entries = func(ctx context.Context) (int, error) { return redisEntries(ctx, p.members) }
		})
	}
}

func startRedlock() (*place, error) {
	members, err := servers.StartGroup(3, servers.Redis)
	if err != nil {
		return nil, err
	}
	return &place{addrs: members.Addrs(), members: members, stop: members.Stop,
		url:     func(addrs []string) string { return "redlock://" + strings.Join(addrs, ",") },
		entries: func(ctx context.Context) (int, error) { return redisEntries(ctx, members) }}, nil
}

func startMemcached() (*place, error) {
	return one(servers.Memcached, "", nil, func(p *place, s *servers.Server) {
		p.entries = func(ctx context.Context) (int, error) { return memcachedEntries(ctx, s.Addr()) }
	})
}

func startSQL(kind *servers.Kind, query string) func() (*place, error) {
	return func() (*place, error) {
		return one(kind, query, nil, func(p *place, s *servers.Server) {
			p.entries = func(ctx context.Context) (int, error) { return sqlEntries(ctx, s, query != "") }
			if query == "" {
				p.lingers, p.janitor = sqlLingers, func(ctx context.Context) error { return p.runJanitor(ctx, sqlJanitorIsDue(ctx, s)) }
			}
		})
	}
}

func startEtcd() (*place, error) {
	return one(servers.Etcd, "", []string{servers.EtcdSynced}, func(p *place, s *servers.Server) {
		p.entries = func(ctx context.Context) (int, error) { return etcdEntries(ctx, p.members.Addrs()) }
	})
}

func startEtcdCluster() (*place, error) {
	cluster, err := servers.StartEtcdCluster(nil)
	if err != nil {
		return nil, err
	}
	return &place{addrs: cluster.Members.Addrs(), members: cluster.Members, leader: cluster.Leader, stop: cluster.Stop,
		url:     func(addrs []string) string { return servers.Etcd.URL(strings.Join(addrs, ",")) },
		entries: func(ctx context.Context) (int, error) { return etcdEntries(ctx, cluster.Members.Addrs()) }}, nil
}

// zookeeperTimeout is that of sessions, and the TTL of the soak.
const zookeeperTimeout = "timeout=3s"

func startZooKeeper() (*place, error) {
	return one(servers.ZooKeeperReaping, zookeeperTimeout, nil, func(p *place, s *servers.Server) {
		p.entries = func(ctx context.Context) (int, error) { return zookeeperEntries(ctx, s) }
	})
}

func startEnsemble() (*place, error) {
	ensemble, err := servers.StartEnsemble()
	if err != nil {
		return nil, err
	}
	return &place{addrs: ensemble.Members.Addrs(), members: ensemble.Members, leader: ensemble.Leader, stop: ensemble.Stop,
		url: func(addrs []string) string {
			return withQuery(servers.ZooKeeper.URL(strings.Join(addrs, ",")), zookeeperTimeout)
		},
		entries: func(ctx context.Context) (int, error) {
			leader, err := ensemble.Leader(ctx)
			if err != nil {
				return 0, errors.Join(err, ctx.Err())
			}
			return zookeeperEntries(ctx, leader)
		}}, nil
}
