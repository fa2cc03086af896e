package servers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	c := RunCluster(t)
	ctx := limit(t)
	if want := "redis+cluster://" + strings.Join(c.Nodes.Addrs(), ","); c.URL() != want {
		t.Errorf("URL is %s, want %s", c.URL(), want)
	}
	for i, node := range c.Nodes {
		info, err := wire.RedisText(ctx, node.Addr(), "CLUSTER", "INFO")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6"} {
			if !strings.Contains(info, want) {
				t.Errorf("node %d does not report %s:\n%s", i, want, info)
			}
		}
	}
	served := make(map[*Server]bool)
	for i := range 20 {
		key := fmt.Sprint("key", i)
		master := agreedMaster(ctx, t, c, key)
		served[master] = true
		acknowledged(t, master, key, 1)
		for _, other := range c.Nodes {
			if other != master {
				ask(t, other, "SET "+key+" 1\r\n", "-MOVED")
			}
		}
	}
	if len(served) != shardCount {
		t.Errorf("20 keys are on %d masters, want %d", len(served), shardCount)
	}
}

// agreedMaster waits until all nodes know the master of a key: a slow node may be suspected.
func agreedMaster(ctx context.Context, t *testing.T, c *Cluster, key string) (master *Server) {
	t.Helper()
	if err := until(ctx, "all nodes know the master", func(ctx context.Context) (err error) {
		master, err = c.Master(ctx, key)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return master
}

func TestClusterFailsOverAndOldMasterRejoins(t *testing.T) {
	t.Parallel()
	c := RunCluster(t)
	ctx := limit(t)
	old := agreedMaster(ctx, t, c, "kept")
	acknowledged(t, old, "kept", 1)
	try(t, old.Kill)
	promoted, err := c.WaitFailover(ctx, "kept", old)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, promoted, "EXISTS kept\r\n", ":"); got != ":1" {
		t.Error("a write that the replica had acknowledged is lost")
	}
	try(t, old.Restart)
	if err := c.WaitSettled(ctx); err != nil {
		t.Fatal(err)
	}
	if got := agreedMaster(ctx, t, c, "kept"); got != promoted {
		t.Errorf("the master is %v after the old master rejoined, want the promoted node", got)
	}
	acknowledged(t, promoted, "{kept}after", 1)

	try(t, c.Stop)
	for _, node := range c.Nodes {
		gone(t, node.Dir())
	}
}

func TestClusterPassesArgumentsToServers(t *testing.T) {
	t.Parallel()
	c := RunCluster(t, "--maxmemory-policy", "volatile-lru")
	for _, node := range c.Nodes {
		if info, err := wire.RedisText(limit(t), node.Addr(), "INFO", "memory"); err != nil || !strings.Contains(info, "maxmemory_policy:volatile-lru") {
			t.Errorf("the policy is not volatile-lru (%v):\n%s", err, info)
		}
	}
}
