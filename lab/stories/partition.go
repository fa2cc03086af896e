//go:build linux

package stories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var silentPartition = Story{
	Number: 28, Name: "silent-partition", TTL: 2 * time.Second,
	Title: "The network between a process and the server is cut without a word",
	Tells: "A runs in a network namespace of its own. Its packets and those of the server get lost, longer than the lock lives, and no connection breaks: neither side gets an error. " +
		"A must stop by its own clock before the server gives the lock to B. Then the network is healed, and both get their turn.",
	On: []Place{
		{"redis", inNetwork(servers.Redis, "", "--protected-mode", "no"), []Case{caught("redis/endless-renewal", stage.TwoHolders),
			peer("redis/redsync"), peer("redis/rueidislock"), peer("redis/redisson"), ours("redis")}},
		{"etcd", inNetwork(servers.Etcd, ""), []Case{caught("etcd/lease-only", stage.TwoFenced), peer("etcd/concurrency"), ours("etcd")}},
		{"zookeeper", inNetwork(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), peer("zookeeper/curator"), ours("zookeeper")}},
		{"postgres", inNetwork(servers.Postgres, ""), []Case{caught("postgres/for-update", stage.Stuck), ours("postgres")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.ProcessInNetwork("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Read()
		s.Cut("all packets of A get lost")
		if !retry(s, b) {
			return
		}
		b.Deposit()
		s.Wait(s.TTL / 4) // what both believe is recorded
		a.Write()
		s.Heal("the network of A is healed")
		a.Unlock()
		s.Wait(s.TTL / 4)
		b.Deposit()
		b.Unlock()
		turnAfterCut(s, a, b)
	},
}

var oneWayPartition = Story{
	Number: 28, Name: "one-way-partition", TTL: 2 * time.Second,
	Title: "The network between a process and the server loses the packets of one direction",
	Tells: "A runs in a network namespace of its own. First its packets get lost, while those of the server arrive. Then the packets of the server get lost, while those of A arrive: " +
		"the server executes what A asks for, and A does not know. Both last longer than the lock lives. A must stop by its own clock before the server gives the lock to B. After each cut both get their turn.",
	On: []Place{
		{"redis", inNetwork(servers.Redis, "", "--protected-mode", "no"), []Case{caught("redis/endless-renewal", stage.TwoHolders),
			peer("redis/redsync"), peer("redis/rueidislock"), peer("redis/redisson"), ours("redis")}},
		{"etcd", inNetwork(servers.Etcd, ""), []Case{caught("etcd/lease-only", stage.TwoFenced), peer("etcd/concurrency"), ours("etcd")}},
		{"zookeeper", inNetwork(servers.ZooKeeper, "timeout=2s"), []Case{peer("zookeeper/go-zookeeper"), peer("zookeeper/curator"), ours("zookeeper")}},
		{"postgres", inNetwork(servers.Postgres, ""), []Case{ours("postgres")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.ProcessInNetwork("A"), s.Process("B")
		turn(b)
		for _, cut := range []struct {
			text      string
			direction proxy.Direction
		}{
			{"the packets of A get lost, those of the server arrive", proxy.Requests},
			{"the packets of the server get lost, those of A arrive", proxy.Replies},
		} {
			if !a.Lock() {
				return
			}
			a.Read()
			s.Cut(cut.text, cut.direction)
			granted := b.TryFor(4 * s.TTL) // renewals that arrive may keep the lock alive
			if granted {
				b.Deposit()
				s.Wait(s.TTL / 4) // what both believe is recorded
			}
			a.Write()
			s.Heal("the network of A is healed")
			a.Unlock()
			if granted {
				s.Wait(s.TTL / 4)
				b.Deposit()
				b.Unlock()
			}
			if !turnAfterCut(s, a, b) {
				return
			}
		}
	},
}

// reconnectLimit is how long a library may need to get through again after a cut: TCP repeats lost
// packets at intervals that grow to about the length of the cut.
const reconnectLimit = 20 * time.Second

// turnAfterCut lets a, which was cut off, and then b have their turns. It reports whether a got its
// turn.
func turnAfterCut(s *stage.Stage, a, b *stage.Process) bool {
	s.Patience += reconnectLimit
	defer func() { s.Patience -= reconnectLimit }()
	if !retry(s, a) {
		return false
	}
	a.Deposit()
	a.Unlock()
	turn(b)
	return true
}

// inNetwork starts a server that listens on the cable of a network namespace.
func inNetwork(kind *servers.Kind, query string, args ...string) func() (*stage.Server, error) {
	return func() (*stage.Server, error) {
		network, err := stage.NewNetwork()
		if err != nil {
			return nil, err
		}
		s, err := stage.Start(listenAt(kind, network.Server), query, args...)
		if err != nil {
			return nil, errors.Join(err, network.Close())
		}
		s.Addrs[0], s.Network = withHost(s.Addrs[0], network.Server), network
		stop := s.Stop
		s.Stop = func() error { return errors.Join(stop(), network.Close()) }
		return s, nil
	}
}

// listenAt returns a kind of server that listens at another host than 127.0.0.1.
func listenAt(kind *servers.Kind, host string) *servers.Kind {
	k := elsewhere(kind, func(in *servers.Instance) { in.Host = host })
	k.Probe = func(ctx context.Context, addr string) error { return kind.Probe(ctx, withHost(addr, host)) }
	if kind == servers.Postgres {
		k.Configure = func(in servers.Instance) error { return trustNetwork(in.Data, host) }
	}
	return k
}

// trustNetwork lets clients of the cable in, as initdb does for those of 127.0.0.1.
func trustNetwork(data, host string) error {
	rules, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(rules, "host all all %s/30 trust\n", host)
	return errors.Join(err, rules.Close())
}

// withHost replaces the host of host:port.
func withHost(addr, host string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err) // the address of a server has a port
	}
	return net.JoinHostPort(host, port)
}
