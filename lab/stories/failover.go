//go:build linux

package stories

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// failoverLimit is how long a replica may take to become the master.
const failoverLimit = 3 * time.Minute

// replicated is a server whose replicas can be cut off, and that can die.
type replicated struct {
	link *proxy.Proxy // between the replicas and the server
	kill func(ctx context.Context) error
}

// isolate lets the replicas learn nothing more.
func (r *replicated) isolate(s *stage.Stage) {
	s.Harm("the replicas are cut off from the master")
	r.link.Hold()
}

// die kills the server, and returns when a replica has taken over.
func (r *replicated) die(s *stage.Stage) {
	s.Harm("the master dies")
	ctx, cancel := context.WithTimeout(s.Context(), failoverLimit)
	defer cancel()
	s.Must(r.kill(ctx))
	s.Harm("a replica is the master")
}

// startSentinel starts a master with replicas and sentinels.
func startSentinel() (*stage.Server, error) {
	r := new(replicated)
	var err error
	sentinel, startErr := servers.StartSentinel(servers.SentinelOptions{ReplicaOf: func(addr string) string {
		if r.link, err = proxy.Start(addr); err != nil {
			return addr
		}
		return r.link.Addr()
	}})
	if err = errors.Join(err, startErr); err != nil {
		return nil, err
	}
	r.kill = func(ctx context.Context) error {
		master := sentinel.Servers[0]
		if err := master.Kill(); err != nil {
			return err
		}
		r.link.Reset() // the replicas see that the master is gone
		_, err := sentinel.WaitFailover(ctx, master)
		return err
	}
	stop := func() error {
		r.link.Close()
		return sentinel.Stop()
	}
	return &stage.Server{URL: func([]string) string { return sentinel.URL() }, Stop: stop, Any: r}, nil
}

// masterForgets plays a master that dies before its replicas know the lock of A.
func masterForgets(s *stage.Stage) {
	s.Patience = time.Minute
	r := s.Server.Any.(*replicated)
	a, b := s.Process("A"), s.Process("B")
	turn(a)
	s.Wait(time.Second) // the replicas know that it is free
	r.isolate(s)
	if a.TryFor(5 * time.Second) {
		a.Read()
		a.Check()
	}
	r.die(s)
	if retry(s, b) {
		writeBoth(s, a, b)
	}
}

var sentinelForgets = Story{
	Number: 9, Name: "master-dies", TTL: 30 * time.Second,
	Title: "The Redis master dies before its replicas know the lock (Sentinel)",
	Tells: "The master grants the lock to A and dies before it has told its replicas. Sentinel makes a replica the master, which knows nothing of A, and grants the lock to B. " +
		"With its default settings dlock cannot prevent that either, and says so: but the token of B is larger.",
	On: []Place{{"sentinel", startSentinel, []Case{caught("sentinel/no-fence", stage.TwoHolders), peer("sentinel/redsync"),
		ours("sentinel", stage.TwoFenced)}}},
	Play: masterForgets,
}

var sentinelWaits = Story{
	Number: 11, Name: "wait-for-replicas", TTL: 30 * time.Second,
	Title: "The remedy: no lock without the acknowledgement of a replica (WAIT)",
	Tells: "The same as before, but the lock counts only when a replica has it too. The master that is cut off cannot grant it. " +
		"What is left of the risk: of several replicas, one that does not have the lock may become the master.",
	On: []Place{{"sentinel", startSentinel, []Case{caught("sentinel/no-fence", stage.TwoHolders),
		{"sentinel/dlock-wait", []stage.Verdict{stage.Held}}}}},
	Play: masterForgets,
}

// startCluster starts a cluster.
func startCluster() (*stage.Server, error) {
	cluster, err := servers.StartCluster()
	if err != nil {
		return nil, err
	}
	return &stage.Server{URL: func([]string) string { return cluster.URL() }, Stop: cluster.Stop, Any: cluster}, nil
}

var clusterForgets = Story{
	Number: 10, Name: "cluster-master-dies", TTL: 30 * time.Second,
	Title: "The Redis master dies before its replica knows the lock (Cluster)",
	Tells: "The same in a cluster: the replica of the node that has the lock is paused when A gets the lock, and becomes the master afterwards.",
	On: []Place{{"cluster", startCluster, []Case{caught("cluster/no-fence", stage.TwoHolders), peer("cluster/redsync"),
		ours("cluster", stage.TwoFenced)}}},
	Play: func(s *stage.Stage) {
		s.Patience = time.Minute
		cluster := s.Server.Any.(*servers.Cluster)
		a, b := s.Process("A"), s.Process("B")
		turn(a)
		master, err := cluster.Master(s.Context(), stage.LockName)
		s.Must(err)
		// The nodes are the masters, then the replica of each.
		replica := cluster.Nodes[slices.Index(cluster.Nodes, master)+len(cluster.Nodes)/2]
		s.Wait(time.Second) // the replica knows that the lock is free
		s.Harm("the replica is paused and cut off")
		s.Must(replica.Pause())
		client := newRedis(master.Addr()) // otherwise the kernel delivers what the master has sent
		defer client.Close()
		s.Must(client.Do(s.Context(), "client", "kill", "type", "replica").Err())
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("the master dies, and the replica goes on")
		s.Must(errors.Join(master.Kill(), replica.Resume()))
		ctx, cancel := context.WithTimeout(s.Context(), failoverLimit)
		defer cancel()
		_, err = cluster.WaitFailover(ctx, stage.LockName, master)
		s.Must(err)
		s.Harm("the replica is the master")
		if retry(s, b) {
			writeBoth(s, a, b)
		}
	},
}

// startPostgresPair starts a database with an asynchronous replica. Processes connect
// to a proxy that follows the promotion.
func startPostgresPair() (*stage.Server, error) {
	r := new(replicated)
	var err error
	pair, startErr := servers.StartPostgresPair(servers.PairOptions{ReplicaOf: func(addr string) string {
		if r.link, err = proxy.Start(addr); err != nil {
			return addr
		}
		return r.link.Addr()
	}})
	if err = errors.Join(err, startErr); err != nil {
		return nil, err
	}
	front, err := proxy.Start(pair.Primary.Addr())
	if err != nil {
		return nil, errors.Join(err, pair.Stop())
	}
	r.kill = func(ctx context.Context) error {
		if err := errors.Join(pair.Primary.Kill(), pair.Promote(ctx)); err != nil {
			return err
		}
		front.Redirect(pair.Replica.Addr())
		front.Reset()
		return nil
	}
	url := strings.Replace(pair.Primary.URL(), pair.Primary.Addr(), front.Addr(), 1)
	stop := func() error {
		front.Close()
		r.link.Close()
		return pair.Stop()
	}
	return &stage.Server{URL: func([]string) string { return url }, Stop: stop, Any: r}, nil
}

var replicaWithoutRow = Story{
	Number: 24, Name: "replica-without-row", TTL: 30 * time.Second,
	Title: "A replica of the database is promoted without the row",
	Tells: "The primary grants the lock to A and dies before its asynchronous replica has the row. The replica takes over, and grants the lock to B. " +
		"dlock cannot prevent that: a lock in a database is as durable as its data, and so is its token. Synchronous replication is the remedy.",
	On: []Place{{"postgres", startPostgresPair, []Case{caught("postgres/row-expires", stage.TwoHolders),
		ours("postgres", stage.TwoHolders, stage.TwoFenced)}}},
	Play: masterForgets,
}
