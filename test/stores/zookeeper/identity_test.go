package zookeeper

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// TestIdentity: an ensemble is the same to all who ask, whatever their root, and another
// one is not. Nothing is left of it.
func TestIdentity(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	var names []string
	for i, root := range []string{"", "/a", "/b?create=true"} {
		names = append(names, identity(t, open(t, ensemble.Members[i].URL()+root)))
	}
	if names[0] == "" || names[1] != names[0] || names[2] != names[0] {
		t.Errorf("one ensemble is %q", names)
	}
	server := servers.Run(t, servers.ZooKeeper)
	store, err := zklock.Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if other := identity(t, store); other == names[0] {
		t.Errorf("two ensembles are both %q", other)
	}
	for info, err := range store.List(t.Context(), "") {
		t.Errorf("listed is %+v, %v", info, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	conn := admin(t, server.Addr())
	eventually(t, "nothing is left", func() bool {
		children, _, err := conn.Children("/")
		return err == nil && len(children) == 1 // ZooKeeper's own
	})
}

func identity(t testing.TB, store *zklock.Store) string {
	t.Helper()
	id, err := store.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}
