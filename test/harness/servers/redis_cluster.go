package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

const (
	shardCount         = 3
	slotCount          = 16384
	clusterNodeTimeout = time.Second
)

// Cluster is a Redis Cluster of three masters, each with a replica that takes
// over about two seconds after its master has died.
type Cluster struct {
	Nodes Group // the masters, then the replica of each
}

// RunCluster starts a Cluster for a test, with additional arguments for its
// servers, and stops it when the test ends.
func RunCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	return keep(StartCluster(args...))(t)
}

// StartCluster starts a Cluster and waits until it has settled.
func StartCluster(args ...string) (*Cluster, error) {
	nodes, err := StartGroup(2*shardCount, clusterNode, args...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Nodes: nodes}
	if err := c.create(); err != nil {
		return nil, errors.Join(c.Nodes.withLogs(err), c.Stop())
	}
	return c, nil
}

// RunShard starts, for a test, one server in cluster mode that has all slots, with
// additional arguments, and stops it when the test ends.
func RunShard(t testing.TB, args ...string) *Server {
	t.Helper()
	server := Run(t, clusterNode, args...)
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	_, err := wire.Redis(ctx, server.Addr(), "CLUSTER", "ADDSLOTSRANGE", "0", strconv.Itoa(slotCount-1))
	if err == nil {
		err = until(ctx, "the server serves its slots", func(ctx context.Context) error {
			return clusterWorks(ctx, server)
		})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, server.Log())
	}
	return server
}

// clusterNode keeps its view of the cluster with its data.
var clusterNode = func() *Kind {
	kind := *Redis
	kind.Args = func(in Instance) []string {
		args := append(Redis.Args(in),
			"--cluster-enabled", "yes",
			"--cluster-port", strconv.Itoa(busPort(in.Port)),
			"--cluster-node-timeout", strconv.FormatInt(clusterNodeTimeout.Milliseconds(), 10),
		)
		return append(args, replication...)
	}
	kind.URL = clusterURL
	return &kind
}()

// busPort returns the port for the traffic between nodes. Redis's default is
// higher by 10000, inside the range of outgoing connections, and could be taken
// while a node is down.
func busPort(port int) int { return port - 10000 }

func clusterURL(addrs string) string { return "redis+cluster://" + addrs }

// URL returns a URL with the addresses of all nodes.
func (c *Cluster) URL() string { return clusterURL(c.Nodes.list()) }

// Stop stops all nodes.
func (c *Cluster) Stop() error { return c.Nodes.Stop() }

func (c *Cluster) all() Group { return c.Nodes }

// create makes a cluster of nodes that do not know each other yet.
func (c *Cluster) create() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	ids := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		var err error
		if ids[i], err = wire.RedisText(ctx, node.Addr(), "CLUSTER", "MYID"); err != nil {
			return err
		}
		orders := [][]string{{"SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}}
		if i < shardCount {
			first, last := slotCount*i/shardCount, slotCount*(i+1)/shardCount-1
			orders = append(orders, []string{"ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)})
		}
		// Every node meets every other node, so that the cluster does not depend
		// on gossip.
		for _, other := range c.Nodes[:i] {
			port := other.in.Port
			orders = append(orders, []string{"MEET", other.in.Host, strconv.Itoa(port), strconv.Itoa(busPort(port))})
		}
		for _, order := range orders {
			if _, err := wire.Redis(ctx, node.Addr(), append([]string{"CLUSTER"}, order...)...); err != nil {
				return err
			}
		}
	}
	for i, replica := range c.Nodes[shardCount:] {
		if err := until(ctx, "a replica knows its master", func(ctx context.Context) error {
			_, err := wire.Redis(ctx, replica.Addr(), "CLUSTER", "REPLICATE", ids[i])
			return err
		}); err != nil {
			return err
		}
	}
	return c.WaitSettled(ctx)
}

// WaitSettled waits until all nodes run, agree on their roles and report that the
// cluster works, and the replicas have the data of their masters.
func (c *Cluster) WaitSettled(ctx context.Context) error {
	return until(ctx, "the nodes have found each other", func(ctx context.Context) error {
		if len(c.Nodes.running()) < len(c.Nodes) {
			return errors.New("a node is down")
		}
		views, err := c.views(ctx)
		if err != nil {
			return err
		}
		for _, view := range views {
			masters := 0
			for _, node := range view {
				if node.master {
					masters++
				} else if err := follows(ctx, node.Server); err != nil {
					return err
				}
			}
			if len(view) != len(c.Nodes) || masters != shardCount {
				return fmt.Errorf("a node knows %d nodes with %d masters, want %d with %d",
					len(view), masters, len(c.Nodes), shardCount)
			}
		}
		return nil
	})
}

// Master returns the node that has the key. All running nodes must agree on it.
func (c *Cluster) Master(ctx context.Context, key string) (*Server, error) {
	running := c.Nodes.running()
	if len(running) == 0 {
		return nil, errors.New("no node runs")
	}
	text, err := wire.RedisText(ctx, running[0].Addr(), "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return nil, err
	}
	slot, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	views, err := c.views(ctx)
	if err != nil {
		return nil, err
	}
	var master *Server
	for _, view := range views {
		i := slices.IndexFunc(view, func(n clusterView) bool { return n.master && n.serves(slot) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("a node knows no master for slot %d", slot)
		case master == nil:
			master = view[i].Server
		case master != view[i].Server:
			return nil, fmt.Errorf("the nodes disagree on slot %d: %s or %s", slot, master.Addr(), view[i].Addr())
		}
	}
	return master, nil
}

// WaitFailover waits until a node other than old has the key, and returns it.
func (c *Cluster) WaitFailover(ctx context.Context, key string, old *Server) (*Server, error) {
	return awaitMaster(ctx, old, func(ctx context.Context) (*Server, error) { return c.Master(ctx, key) })
}

// clusterView is what a node reports about another node, or about itself.
type clusterView struct {
	*Server
	master bool
	slots  []string // "0-5460", "7000"
}

func (v clusterView) serves(slot int) bool {
	return slices.ContainsFunc(v.slots, func(s string) bool {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		from, fromErr := strconv.Atoi(first)
		to, toErr := strconv.Atoi(last)
		return fromErr == nil && toErr == nil && from <= slot && slot <= to
	})
}

// views returns the reports of all running nodes about the nodes that have not
// failed. It fails unless each of them reports that the cluster works.
func (c *Cluster) views(ctx context.Context) ([][]clusterView, error) {
	running := c.Nodes.running()
	views := make([][]clusterView, len(running))
	for i, node := range running {
		if err := clusterWorks(ctx, node); err != nil {
			return nil, err
		}
		var err error
		if views[i], err = c.view(ctx, node); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// clusterWorks checks that a node reports so.
func clusterWorks(ctx context.Context, node *Server) error {
	info, err := wire.RedisText(ctx, node.Addr(), "CLUSTER", "INFO")
	if err == nil && !strings.Contains(info, "cluster_state:ok") {
		err = fmt.Errorf("%s reports:\n%s", node.Addr(), info)
	}
	return err
}

// view parses lines of the form: id host:port@bus,name flags master ping pong
// epoch link slots...
func (c *Cluster) view(ctx context.Context, node *Server) ([]clusterView, error) {
	text, err := wire.RedisText(ctx, node.Addr(), "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var view []clusterView
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%s returned %q, which describes no node", node.Addr(), line)
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		flags := strings.Split(fields[2], ",")
		if fields[7] != "connected" || slices.ContainsFunc(flags, func(f string) bool {
			return strings.HasPrefix(f, "fail") || f == "handshake"
		}) {
			continue
		}
		known := c.Nodes.At(addr)
		if known == nil {
			return nil, fmt.Errorf("%s knows %s, which is not in %v", node.Addr(), addr, c.Nodes.Addrs())
		}
		view = append(view, clusterView{known, slices.Contains(flags, "master"), fields[8:]})
	}
	return view, nil
}
