package stories

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/lab/stage"
)

var pauseBeforeWrite = Story{
	Number: 7, Name: "pause-before-write", TTL: 2 * time.Second,
	Title: "A process is paused between its check and its write, for longer than the lock lives",
	Tells: "A has checked its lock and is about to write when it is paused: a long garbage collection, a machine that is moved. B gets the lock and writes. Then A goes on and writes what it had read before. " +
		"No lock can prevent that: only the account can, if each write carries a token and the account refuses a smaller one than before.",
	On: []Place{
		onRedis(caught("redis/no-fence", stage.Accepted), peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"), ours("redis", stage.Refused)),
		{"etcd", run(servers.Etcd, ""), []Case{peer("etcd/concurrency"), ours("etcd", stage.Refused)}},
		{"zookeeper", run(servers.ZooKeeper, "?timeout=2s"), []Case{ours("zookeeper", stage.Refused)}},
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
		{"zookeeper", run(servers.ZooKeeper, "?timeout=2s"), []Case{ours("zookeeper")}},
	},
	Play: func(s *stage.Stage) {
		s.Patience += 10 * time.Second
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Pause()
		if b.Lock() {
			b.Deposit()
			a.Resume()
			a.Write()
			s.Wait(s.TTL / 4)
			b.Deposit()
			b.Unlock()
		}
	},
}

var memcachedEvicts = Story{
	Number: 20, Name: "memcached-evicts", TTL: 10 * time.Second,
	Title: "memcached runs out of memory and evicts the lock",
	Tells: "A has the lock. Other data fills the memory of the cache, which forgets the lock. B gets it while A believes to have it. " +
		"dlock cannot prevent that on memcached, and says so; A knows it at its next renewal, and the token of A is smaller than that of B.",
	On: []Place{{"memcached", run(servers.Memcached, "", "-m", "2"),
		[]Case{caught("memcached/add-delete", stage.TwoHolders), ours("memcached", stage.TwoFenced, stage.Refused)}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("other data fills the memory")
		s.Do(func() error { return fillMemcached(s.Server.Addrs[0]) })
		if b.TryFor(s.TTL / 4) {
			b.Deposit()
			s.Wait(100 * time.Millisecond) // both believe
			a.WriteChecked()
			b.Unlock()
		}
	},
}

var rowForever = Story{
	Number: 21, Name: "row-never-removed", TTL: time.Second,
	Title: "The row that is the lock is never removed, because its process died",
	Tells: "A inserts a row and dies. If the row has no expiry, nobody removes it, and B waits for ever.",
	On: []Place{
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/row-forever", stage.Stuck), ours("postgres")}},
		{"mysql", run(servers.MariaDB, ""), []Case{ours("mysql")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		a.Kill()
		turn(b)
	},
}

var rowClientClock = Story{
	Number: 22, Name: "clock-of-the-database", TTL: 2 * time.Second,
	Title: "The expiry in the row is a time of the client's clock",
	Tells: "The clock of B is an hour ahead. If the row's expiry is compared with the clock of B, B takes a lock that A has. dlock compares times of the database only.",
	On: []Place{
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/row-client-clock", stage.TwoHolders), ours("postgres")}},
	},
	Play: clientClocks.Play,
}

// fillMemcached stores items of all sizes that a lock may have, without waiting for
// each answer.
func fillMemcached(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	var requests strings.Builder
	for size := 4; size <= 480; size += 20 {
		value := strings.Repeat("x", size)
		for i := range 12_000 {
			fmt.Fprintf(&requests, "set fill:%d:%d 0 0 %d noreply\r\n%s\r\n", size, i, size, value)
		}
	}
	requests.WriteString("version\r\n")
	if _, err := io.WriteString(conn, requests.String()); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n') // it has executed all of them
	return err
}
