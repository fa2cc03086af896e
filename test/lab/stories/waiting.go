package stories

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/lab/stage"
	"github.com/redis/go-redis/v9"
)

// createsNode matches the request to ZooKeeper that creates a node of the lock.
func createsNode(request []byte) bool {
	return namesLock(request) && (bytes.Contains(request, []byte("lock-")) || bytes.Contains(request, []byte("__WRIT__")))
}

var ghostNode = Story{
	Number: 16, Name: "ghost-node", TTL: 6 * time.Second,
	Title: "ZooKeeper creates the node of a waiter, and its answer is lost",
	Tells: "The server has created the node of A, and the connection breaks before A knows its name. A creates another one, and waits for the first, which is its own and lives as long as its session.",
	On: []Place{{"zookeeper", run(servers.ZooKeeper, "?timeout=6s"), []Case{caught("zookeeper/create-again", stage.Stuck),
		peer("zookeeper/go-zookeeper"), ours("zookeeper")}}},
	Play: func(s *stage.Stage) {
		s.Patience = 15 * time.Second
		a := s.Process("A")
		turn(a)
		lost := a.Proxies[0].LoseReply(createsNode, true)
		first := a.StartLock(s.Patience)
		s.Await("the lost answer", lost)
		s.Harm("the answer to A is lost")
		if !first() && !a.TryFor(s.Patience) {
			s.Stuck("A waits for itself")
			return
		}
		a.Deposit()
		a.Unlock()
	},
}

var herd = Story{
	Number: 17, Name: "herd", TTL: 20 * time.Second,
	Title: "A release wakes all waiters of a ZooKeeper lock, and all but one wait again",
	Tells: "A has the lock, and four processes wait. A unlocks. If all waiters watch the same node, each of them asks the server again, and all but one in vain: with a thousand waiters, a thousand requests for each release. It costs no safety, but the server's time.",
	On: []Place{{"zookeeper", run(servers.ZooKeeper, "?timeout=20s"), []Case{caught("zookeeper/one-node", stage.Herd),
		peer("zookeeper/go-zookeeper"), ours("zookeeper")}}},
	Play: func(s *stage.Stage) {
		server := s.Server.Any.(*servers.Server)
		a := s.Process("A")
		a.Lock()
		a.Deposit()
		const waiters = 4
		granted := make(chan *stage.Process, waiters)
		for _, name := range []string{"B", "C", "D", "E"} {
			p := s.Process(name)
			wait := p.StartLock(s.Patience)
			go func() {
				if wait() {
					granted <- p
				} else {
					granted <- nil
				}
			}()
		}
		s.Wait(time.Second) // all of them wait
		received := func() (n int) {
			s.Do(func() error {
				figures, err := server.Monitor(s.Context())
				if err == nil {
					n, err = strconv.Atoi(figures["zk_packets_received"])
				}
				return err
			})
			return n
		}
		before := received()
		a.Unlock()
		next := <-granted
		s.Wait(500 * time.Millisecond)
		if after := received(); after-before > waiters+2 {
			s.Herd(fmt.Sprintf("the release caused %d requests", after-before))
		} else {
			s.Harm(fmt.Sprintf("the release caused %d requests", after-before))
		}
		for i := 1; next != nil; i++ {
			next.Deposit()
			next.Unlock()
			if i == waiters {
				return
			}
			next = <-granted
		}
		s.Stuck("a waiter does not get the lock")
	},
}

var leaderKilled = Story{
	Number: 18, Name: "etcd-leader-killed", TTL: 4 * time.Second,
	Title: "The leader of etcd is killed, and then the lease expires",
	Tells: "The leader of three servers is killed while A has the lock: A keeps it. Then A is paused for longer than its lease lives: B gets it, and A knows that when it goes on.",
	On: []Place{{"etcd", startEtcdCluster, []Case{caught("etcd/lease-only", stage.TwoFenced), peer("etcd/concurrency"),
		ours("etcd")}}},
	Play: func(s *stage.Stage) {
		s.Patience += 15 * time.Second
		cluster := s.Server.Any.(*servers.EtcdCluster)
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		s.Do(func() error {
			leader, err := cluster.Leader(s.Context())
			if err != nil {
				return err
			}
			return leader.Kill()
		})
		s.Harm("the leader is killed")
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		a.Read()
		a.Pause()
		if retry(b, s.Patience) {
			b.Deposit()
			a.Resume()
			a.Write()
			s.Wait(s.TTL / 4)
			b.Deposit()
			b.Unlock()
		} else {
			s.Stuck("B does not get the lock")
		}
	},
}

func startEtcdCluster() (*stage.Server, error) {
	cluster, err := servers.StartEtcdCluster(nil)
	if err != nil {
		return nil, err
	}
	return &stage.Server{URL: func([]string) string { return cluster.URL() }, Stop: cluster.Stop, Any: cluster}, nil
}

var deadWaiter = Story{
	Number: 19, Name: "waiter-without-session", TTL: 3 * time.Second,
	Title: "The lease of a waiter expires while it waits",
	Tells: "B waits for A and is paused for longer than its lease lives. A unlocks, and C gets the lock. When B goes on, nobody is before it in the queue any more: but its own place is gone too.",
	On: []Place{{"etcd", run(servers.Etcd, ""), []Case{caught("etcd/waits-blindly", stage.TwoHolders), peer("etcd/concurrency"),
		ours("etcd")}}},
	Play: func(s *stage.Stage) {
		s.Patience += 10 * time.Second
		a, b, c := s.Process("A"), s.Process("B"), s.Process("C")
		a.Lock()
		second := b.StartLock(s.Patience)
		s.Wait(s.TTL / 3) // B waits
		b.Pause()
		s.Wait(2 * s.TTL) // its lease expires
		a.Deposit()
		a.Unlock()
		if !c.Lock() {
			return
		}
		c.Read()
		b.Resume()
		s.Wait(s.TTL)
		c.Write()
		c.Unlock()
		if second() {
			b.Deposit()
			b.Unlock()
		}
	},
}

var vanishedTransaction = Story{
	Number: 23, Name: "open-transaction", TTL: 2 * time.Second,
	Title: "The machine of a FOR UPDATE holder vanishes, and its transaction stays open",
	Tells: "A holds a row with SELECT ... FOR UPDATE. Its network is gone without a word. The database keeps the transaction, and with it the lock, until TCP gives up, which takes minutes or hours. " +
		"dlock's scheme forupdate has the same limit, which its page says; its rows with an expiry do not.",
	On: []Place{
		{"forupdate", run(servers.Postgres, "&scheme=forupdate"), []Case{ours("forupdate", stage.Stuck)}},
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/for-update", stage.Stuck), ours("postgres")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		a.Proxies[0].Hold()
		s.Harm("the network of A is gone")
		a.Kill()
		turn(b)
	},
}

var oppositeOrder = Story{
	Number: 25, Name: "opposite-order", TTL: time.Second,
	Title: "Two processes lock the same two names in opposite order",
	Tells: "A wants the names x and y, B wants y and x. If each locks one after the other in its own order, each has one and waits for the other, for ever: their watchdogs renew what they have.",
	On:    []Place{onRedis(caught("redis/one-by-one", stage.Stuck), ours("redis"))},
	Play: func(s *stage.Stage) {
		s.Patience = 3 * time.Second
		a, b := s.Process("A"), s.Process("B")
		for range 20 { // until they meet
			first, second := a.StartLock(s.Patience, "x", "y"), b.StartLock(s.Patience, "y", "x")
			done := make(chan bool, 2)
			for p, wait := range map[*stage.Process]func() bool{a: first, b: second} {
				go func() {
					got := wait()
					if got {
						p.Unlock()
					}
					done <- got
				}()
			}
			if one, two := <-done, <-done; !one || !two {
				s.Stuck("A and B wait for each other")
				return
			}
		}
	},
}

var deadInQueue = Story{
	Number: 26, Name: "dead-in-queue", TTL: time.Second,
	Title: "A waiter at the head of a fair queue dies",
	Tells: "A has the lock, B and C stand in the queue behind it. B dies. When A unlocks, it is the turn of B, which never comes: C must get the lock all the same.",
	On: []Place{
		onRedis(caught("redis/list-queue", stage.Stuck), Case{"redis/dlock-fair", []stage.Verdict{stage.Held}}),
		{"etcd", run(servers.Etcd, ""), []Case{peer("etcd/concurrency"), {"etcd/dlock-fair", []stage.Verdict{stage.Held}}}},
		{"zookeeper", run(servers.ZooKeeper, "?timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), {"zookeeper/dlock-fair", []stage.Verdict{stage.Held}}}},
		{"postgres", run(servers.Postgres, ""), []Case{{"postgres/dlock-fair", []stage.Verdict{stage.Held}}}},
	},
	Play: func(s *stage.Stage) {
		s.TTL = 2 * time.Second
		a, b, c := s.Process("A"), s.Process("B"), s.Process("C")
		a.Lock()
		b.StartLock(s.Patience)
		s.Wait(s.TTL / 4)
		third := c.StartLock(2 * s.Patience)
		s.Wait(s.TTL / 4)
		b.Kill()
		a.Deposit()
		a.Unlock()
		if !third() {
			s.Stuck("C does not get the lock")
			return
		}
		c.Deposit()
		c.Unlock()
	},
}

var fullServer = Story{
	Number: 27, Name: "server-full", TTL: time.Second,
	Title: "The server has no memory left, and then refuses all writes",
	Tells: "A has the lock. The server runs full: it must not forget the lock of A. Then it refuses all writes, as a server does whose disk is full or whose replicas are gone: A cannot renew, and must stop before its lock expires; B must not get in beside it. Then all is well again.",
	On: []Place{
		{"redis", run(servers.Redis, "", "--maxmemory", "3mb", "--maxmemory-policy", "noeviction"), []Case{
			caught("redis/no-watchdog", stage.TwoHolders), peer("redis/redsync"), ours("redis")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Deposit()
		onServer(s, func(r *redis.Client) error { return fill(s.Context(), r) })
		s.Harm("the server is full")
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		onServer(s, func(r *redis.Client) error { return r.Del(s.Context(), fillKey).Err() })
		s.Harm("there is room again, but the server refuses all writes")
		onServer(s, func(r *redis.Client) error { return r.ConfigSet(s.Context(), "min-replicas-to-write", "1").Err() })
		a.Read()
		s.Wait(2 * s.TTL)
		onServer(s, func(r *redis.Client) error { return r.ConfigSet(s.Context(), "min-replicas-to-write", "0").Err() })
		s.Harm("the server accepts writes")
		turn(b)
		a.Write()
		a.Unlock()
	},
}

var evictingServer = Story{
	Number: 27, Name: "server-evicts", TTL: time.Minute,
	Title: "The server runs full and evicts keys: the lock is one of them",
	Tells: "The same on a server that is set up to evict keys. The lock of A is gone while A believes to have it, and B gets in. dlock's doctor warns of such a server; A knows it at its next renewal, and its token is smaller than that of B.",
	On: []Place{
		{"redis", run(servers.Redis, "", "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"), []Case{
			caught("redis/no-fence", stage.TwoHolders), peer("redis/redsync"), ours("redis", stage.TwoFenced)}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("other data fills the memory")
		onServer(s, func(r *redis.Client) error {
			value := bytes.Repeat([]byte("x"), 1000)
			for round := range 20 { // many times the memory
				_, err := r.Pipelined(s.Context(), func(p redis.Pipeliner) error {
					for i := range 1000 {
						p.Set(s.Context(), fmt.Sprint(fillKey, round, i), value, 0)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if b.TryFor(s.TTL / 4) {
			b.Deposit()
			s.Wait(100 * time.Millisecond) // both believe
			a.WriteChecked()
			b.Unlock()
		}
	},
}

var slowNetwork = Story{
	Number: 28, Name: "slow-network", TTL: 2 * time.Second,
	Title: "The network holds every packet for longer than the lock lives",
	Tells: "Nothing that A sends arrives, and no answer comes back, without an error. A must stop believing in its lock before the server gives it to B. Then the network delivers everything late. " +
		"Then the same in one direction only: the requests of A arrive, but no answers come back.",
	On: []Place{
		onRedis(caught("redis/no-watchdog", stage.TwoHolders), peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"), ours("redis")),
		{"etcd", run(servers.Etcd, ""), []Case{peer("etcd/concurrency"), ours("etcd")}},
		{"zookeeper", run(servers.ZooKeeper, "?timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), ours("zookeeper")}},
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
		if !retry(b, s.Patience) {
			s.Stuck("B does not get the lock")
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
		if !retry(a, s.Patience) {
			s.Stuck("A does not get the lock")
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

// fillKey is the data that fills a server.
const fillKey = "other data"

func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// fill stores data until the server refuses to.
func fill(ctx context.Context, r *redis.Client) error {
	value := bytes.Repeat([]byte("x"), 1000)
	for range 100_000 {
		if r.RPush(ctx, fillKey, value).Err() != nil {
			return nil
		}
	}
	return errors.New("the server is never full")
}

// onServer does something with the server of the story.
func onServer(s *stage.Stage, do func(r *redis.Client) error) {
	client := newRedis(s.Server.Addrs[0])
	defer client.Close()
	s.Do(func() error { return do(client) })
}
