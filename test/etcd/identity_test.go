package etcd

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/servers"
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
