package etcd

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func identity(t testing.TB, store driver.Store) string {
	t.Helper()
	id, err := store.(driver.Identifier).Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestIdentity: a cluster is the same to all who ask, and to those who may do little,
// and another one is not, also if it was configured alike: etcd's own number of the
// cluster would be the same.
func TestIdentity(t *testing.T) {
	t.Parallel()
	const peer = "http://127.0.0.1:1"
	alike := servers.RunGroup(t, 2, servers.Etcd, "--initial-advertise-peer-urls", peer, "--initial-cluster", "dlock="+peer)
	first, again, other := newStore(t, alike[0].URL()), newStore(t, alike[0].URL()+"/shop"), newStore(t, alike[1].URL())
	if a, b := identity(t, first), identity(t, again); a == "" || a != b {
		t.Errorf("one cluster is %q and %q", a, b)
	}
	if a, b := identity(t, first), identity(t, other); a == b {
		t.Errorf("two clusters are both %q", a)
	}
	cluster := servers.RunEtcdCluster(t, nil)
	if a, b := identity(t, newStore(t, cluster.Members[0].URL())), identity(t, newStore(t, cluster.Members[1].URL())); a != b {
		t.Errorf("two members of one cluster are %q and %q", a, b)
	}
}

// TestIdentityLeavesNothing: the lease of the cluster's name ends with the store, also if
// the answer to its grant was lost.
func TestIdentityLeavesNothing(t *testing.T) {
	t.Parallel()
	for how, reset := range map[string]bool{"silent": false, "reset": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Etcd)
			p := proxy.Run(t, server.Addr())
			store, err := open(t.Context(), "etcd://"+p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			day := binary.AppendUvarint([]byte{0x08}, uint64(24*time.Hour/time.Second))
			lost := p.LoseReply(contains(string(day)), reset)
			ctx, cancel := context.WithTimeout(t.Context(), replaceLimit)
			defer cancel()
			if id, err := store.(driver.Identifier).Identify(ctx); err != nil || id == "" {
				t.Errorf("Identify: %q, %v", id, err)
			}
			happens(t, lost)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if left, err := leftovers(t.Context(), rawClient(t, server.URL())); err != nil || len(left) > 0 {
				t.Errorf("after Close: %q, %v", left, err)
			}
		})
	}
}
