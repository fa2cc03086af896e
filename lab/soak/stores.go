package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/sqllock"
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
	entries   func(ctx context.Context, p *place) (int, error) // that the store keeps; nil if there is none after the processes
}

// place is where the processes of a soak lock.
type place struct {
	*stage.Server // each process has a proxy of its own in front of each address
	members       servers.Group
	clock         time.Duration // the offset of the server's clock
	leader        func(ctx context.Context) (*servers.Server, error)
	sql           func(ctx context.Context, statement string) (string, error)
	swept         bool // a janitor removes what dead processes left in the database, every ten minutes
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
	{"memory", time.Second, 1, 4, []string{"pause"}, startMemory, nil},
	{"sqlite", time.Second, 4, 1, processFaults, startSQLite, countRows(lockRows)},
	{"redis", time.Second, 4, 1, with("restart", "clock"), one(movable(servers.Redis), "protocol=redisson"), countKeys},
	{"redis-plain", time.Second, 4, 1, with("restart", "clock"), one(movable(servers.Redis), "protocol=plain"), countKeys},
	{"redlock", 2 * time.Second, 4, 1, with("restart"), startRedlock, countKeys},
	{"memcached", 2 * time.Second, 4, 1, with(), one(servers.Memcached, ""), countItems},
	{"mysql", time.Second, 4, 1, with("restart"), database(servers.MariaDB), countRows(lockRows)},
	{"postgres", time.Second, 4, 1, with("restart", "clock"), database(movable(servers.Postgres)), countRows(lockRows)},
	{"session", 2 * time.Second, 4, 1, cutFaults, one(servers.Postgres, "scheme=session"), countRows(advisoryRows)},
	{"forupdate", 2 * time.Second, 4, 1, cutFaults, one(servers.MariaDB, "scheme=forupdate"), countRows(boundRows)},
	{"etcd", 3 * time.Second, 4, 1, with("restart"), one(servers.Etcd, "", servers.EtcdSynced), countKeysAndLeases},
	{"etcd-cluster", 3 * time.Second, 4, 1, without("server pause", with("restart", "failover")), startEtcdCluster, countKeysAndLeases},
	{"zookeeper", 3 * time.Second, 4, 1, with("restart"), one(servers.ZooKeeperReaping, zookeeperTimeout), countNodes},
	{"zookeeper-ensemble", 3 * time.Second, 4, 1, with("restart", "failover"), startEnsemble, countNodes},
}

// zookeeperTimeout is that of sessions, and the TTL of the soak.
const zookeeperTimeout = "timeout=3s"

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
	return &place{Server: &stage.Server{URL: func([]string) string { return "" }, Stop: func() error { return nil }}}, nil
}

func startSQLite() (*place, error) {
	folder, err := os.MkdirTemp("", "dlock-soak-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "locks.db")
	return &place{
		Server: &stage.Server{
			URL:  func([]string) string { return "sqlite://" + file },
			Stop: func() error { return os.RemoveAll(folder) },
		},
		sql:   func(ctx context.Context, statement string) (string, error) { return inFile(ctx, file, statement) },
		swept: true,
	}, nil
}

// inFile executes a statement in an SQLite file, and returns the first value if it has any.
func inFile(ctx context.Context, file, statement string) (value string, err error) {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(file))
	if err != nil {
		return "", err
	}
	if err = db.QueryRowContext(ctx, statement).Scan(&value); errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, errors.Join(err, db.Close())
}

// one starts a single server.
func one(kind *servers.Kind, query string, args ...string) func() (*place, error) {
	return func() (*place, error) {
		s, err := stage.Start(kind, query, args...)
		if err != nil {
			return nil, err
		}
		server := s.Any.(*servers.Server)
		return &place{Server: s, members: servers.Group{server}, sql: server.SQL}, nil
	}
}

// database starts a server whose locks are rows with an expiry.
func database(kind *servers.Kind) func() (*place, error) {
	return func() (*place, error) {
		p, err := one(kind, "")()
		if err == nil {
			p.swept = true
		}
		return p, err
	}
}

// movable returns a kind of server whose clock can be moved. It is killed at the end, because
// a signal handler may read the clock while the library that moves it is at work.
func movable(kind *servers.Kind) *servers.Kind {
	moved := servers.WithClock(kind)
	moved.StopSignal = syscall.SIGKILL
	return moved
}

func startRedlock() (*place, error) {
	s, err := stage.StartRedlock(3, servers.Redis)
	return &place{Server: s, members: s.Any.(servers.Group)}, err
}

func startEtcdCluster() (*place, error) {
	s, err := stage.StartEtcdCluster()
	if err != nil {
		return nil, err
	}
	cluster := s.Any.(*servers.EtcdCluster)
	return &place{Server: s, members: cluster.Members, leader: cluster.Leader}, nil
}

func startEnsemble() (*place, error) {
	ensemble, err := servers.StartEnsemble()
	if err != nil {
		return nil, err
	}
	s := stage.Around(ensemble.Members, servers.ZooKeeper.URL, zookeeperTimeout)
	return &place{Server: s, members: ensemble.Members, leader: ensemble.Leader}, nil
}
