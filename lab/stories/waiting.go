//go:build linux

package stories

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// createsNode matches the request to ZooKeeper that creates a node of the lock.
func createsNode(request []byte) bool {
	return namesLock(request) && (bytes.Contains(request, []byte("lock-")) || bytes.Contains(request, []byte("__WRIT__")))
}

var ghostNode = Story{
	Number: 16, Name: "ghost-node", TTL: 6 * time.Second,
	Title: "ZooKeeper creates the node of a waiter, and its answer is lost",
	Tells: "The server has created the node of A, and the connection breaks before A knows its name. A creates another one, and waits for the first, which is its own and lives as long as its session.",
	On: []Place{{"zookeeper", run(servers.ZooKeeper, "timeout=6s"), []Case{caught("zookeeper/create-again", stage.Stuck),
		peer("zookeeper/go-zookeeper"), peer("zookeeper/curator"), ours("zookeeper")}}},
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
	On: []Place{{"zookeeper", run(servers.ZooKeeper, "timeout=20s"), []Case{caught("zookeeper/one-node", stage.Herd),
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
			figures, err := server.Monitor(s.Context())
			s.Must(err)
			n, err = strconv.Atoi(figures["zk_packets_received"])
			s.Must(err)
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
		{"zookeeper", run(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), {"zookeeper/dlock-fair", []stage.Verdict{stage.Held}}}},
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
		serve(s, c, third)
	},
}
