package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// faultTTL is long enough for a busy machine.
const faultTTL = 3 * time.Second

// on returns the store on a server, with all that can be done to it.
func on(t testing.TB, server *servers.Server) bundle.Store {
	t.Helper()
	raw := rawClient(t, server.URL())
	remove := func(ctx context.Context, prefix string) error {
		_, err := raw.Delete(ctx, prefix, clientv3.WithPrefix())
		return err
	}
	return bundle.Store{
		URL:    server.URL(),
		Open:   open,
		TTL:    faultTTL,
		Server: server,
		// gRPC answers no call that its client has given up, and not the last frames of a connection.
		Unanswered: time.Second,
		Delete:     func(ctx context.Context, name string) error { return remove(ctx, name+"/") },
		Flush:      func(ctx context.Context) error { return remove(ctx, "") },
	}
}

func onServer(t testing.TB) bundle.Store {
	t.Helper()
	return on(t, servers.Run(t, servers.Etcd))
}

func onDebian(t testing.TB) bundle.Store {
	t.Helper()
	return on(t, servers.Run(t, servers.EtcdDebian))
}

// impossible are faults that do not exist on etcd.
var impossible = []string{
	// A waiter already has its place, and is granted the lock without asking.
	"a lost answer to an acquisition after a wait",
	// HTTP/2 acknowledges a request before it is carried out. Losing that, and the connection,
	// may lose the request. See TestLateAttemptIsUndone.
	"a lost answer to an acquisition",
}

// silent is the fault of a connection that stays open and stops answering. All requests of a client
// share a connection, which the store replaces about three seconds after an unanswered request. A
// lock with a much shorter TTL than silentTTL is lost, in time.
const (
	silent    = "a lost answer to a renewal"
	silentTTL = 12 * time.Second
)

// network returns the faults of the network: that of a silent connection, or the others.
func network(t testing.TB, isSilent bool) []faults.Fault {
	t.Helper()
	list := slices.DeleteFunc(slices.Clone(faults.Network), func(f faults.Fault) bool {
		return slices.Contains(impossible, f.Name) || (f.Name == silent) != isSilent
	})
	if want := len(faults.Network) - len(impossible) - 1; !isSilent && len(list) != want || isSilent && len(list) != 1 {
		t.Fatalf("some of the faults %q and %q have other names now", impossible, silent)
	}
	return list
}

func TestFaults(t *testing.T) {
	t.Parallel()
	faults.Run(t, onServer(t), slices.Concat(faults.Leases, faults.Fair, network(t, false)))
}

// TestFaultsDebian: an old server keeps the same promises.
func TestFaultsDebian(t *testing.T) {
	t.Parallel()
	faults.Run(t, onDebian(t), slices.Concat(faults.Leases, faults.Fair, network(t, false)))
}

// TestFaultsOnASilentConnection: a lock with a long TTL survives a connection that stops answering.
func TestFaultsOnASilentConnection(t *testing.T) {
	t.Parallel()
	s := onServer(t)
	s.TTL = silentTTL / 2 // the fault doubles it
	s.RepeatsCalls = true // over a new connection
	faults.Run(t, s, network(t, true))
}

func TestServerForgets(t *testing.T) {
	t.Parallel()
	faults.RunEach(t, onServer, faults.Lost)
}
