//go:build linux

package stories

import (
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var pauseBeforeWrite = Story{
	Number: 7, Name: "pause-before-write", TTL: 2 * time.Second,
	Title: "A process is paused between its check and its write, for longer than the lock lives",
	Tells: "A has checked its lock and is about to write when it is paused: a long garbage collection, a machine that is moved. B gets the lock and writes. Then A goes on and writes what it had read before. " +
		"No lock can prevent that: only the account can, if each write carries a token and the account refuses a smaller one than before.",
	On: []Place{
		onRedis(caught("redis/no-fence", stage.Accepted), peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"),
			peer("redis/redisson"), peer("redis/redisson-fenced"), ours("redis", stage.Refused)),
		{"etcd", run(servers.Etcd, ""), []Case{peer("etcd/concurrency"), ours("etcd", stage.Refused)}},
		{"zookeeper", run(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/curator"), ours("zookeeper", stage.Refused)}},
		{"memcached", run(servers.Memcached, ""), []Case{ours("memcached", stage.Refused)}},
		{"mysql", run(servers.MariaDB, ""), []Case{ours("mysql", stage.Refused)}},
		{"postgres", run(servers.Postgres, ""), []Case{ours("postgres", stage.Refused)}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Check()
		a.Pause()
		if b.Lock() {
			b.Deposit()
			b.Unlock()
		}
		a.Resume()
		a.WriteChecked()
	},
}

var sessionWhilePaused = Story{
	Number: 15, Name: "session-while-paused", TTL: 2 * time.Second,
	Title: "The session expires while the process is paused",
	Tells: "A is paused for longer than the server keeps its session or lease. B gets the lock. When A goes on, it must know before its next step that it has lost the lock.",
	On: []Place{
		{"etcd", run(servers.Etcd, ""), []Case{caught("etcd/lease-only", stage.TwoFenced), peer("etcd/concurrency"), ours("etcd")}},
		{"zookeeper", run(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/curator"), ours("zookeeper")}},
	},
	Play: func(s *stage.Stage) {
		s.Patience += 10 * time.Second
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Pause()
		if b.Lock() {
			writeAfterPause(s, a, b)
		}
	},
}

var leaderKilled = Story{
	Number: 18, Name: "etcd-leader-killed", TTL: 4 * time.Second,
	Title: "The leader of etcd is killed, and then the lease expires",
	Tells: "The leader of three servers is killed while A has the lock: A keeps it. Then A is paused for longer than its lease lives: B gets it, and A knows that when it goes on.",
	On: []Place{{"etcd", stage.StartEtcdCluster, []Case{caught("etcd/lease-only", stage.TwoFenced), peer("etcd/concurrency"),
		ours("etcd")}}},
	Play: func(s *stage.Stage) {
		s.Patience += 15 * time.Second
		cluster := s.Server.Any.(*servers.EtcdCluster)
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		leader, err := cluster.Leader(s.Context())
		s.Must(err)
		s.Must(leader.Kill())
		s.Harm("the leader is killed")
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		a.Read()
		a.Pause()
		if retry(s, b) {
			writeAfterPause(s, a, b)
		}
	},
}
