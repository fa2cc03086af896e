//go:build linux

package stories

import (
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var slowNetwork = Story{
	Number: 28, Name: "slow-network", TTL: 2 * time.Second,
	Title: "The network holds every packet for longer than the lock lives",
	Tells: "Nothing that A sends arrives, and no answer comes back, without an error. A must stop believing in its lock before the server gives it to B. Then the network delivers everything late. " +
		"Then the same in one direction only: the requests of A arrive, but no answers come back.",
	On: []Place{
		onRedis(caught("redis/no-watchdog", stage.TwoHolders), peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"), ours("redis")),
		{"etcd", run(servers.Etcd, ""), []Case{peer("etcd/concurrency"), ours("etcd")}},
		{"zookeeper", run(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), ours("zookeeper")}},
		{"memcached", run(servers.Memcached, ""), []Case{ours("memcached")}},
		{"postgres", run(servers.Postgres, ""), []Case{ours("postgres")}},
		{"mysql", run(servers.MariaDB, ""), []Case{ours("mysql")}},
	},
	Play: func(s *stage.Stage) {
		s.Patience += 10 * time.Second
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Proxies[0].Hold()
		s.Harm("the network of A holds everything")
		if !retry(s, b) {
			return
		}
		b.Read()
		a.Write()
		a.Proxies[0].Deliver()
		s.Harm("the network of A delivers everything")
		s.Wait(s.TTL / 4)
		b.Write()
		b.Unlock()
		s.Wait(s.TTL) // a library may have to connect again
		if !retry(s, a) {
			return
		}
		a.Read()
		a.Proxies[0].Hold(proxy.Replies)
		s.Harm("answers to A are held")
		if b.TryFor(3 * s.TTL) { // a lock whose renewals arrive may live on
			b.Deposit()
		}
		a.Write()
	},
}
