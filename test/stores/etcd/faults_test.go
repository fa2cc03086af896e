package etcd

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// faultTTL is long enough for a busy machine.
const faultTTL = 3 * time.Second

// rig returns a rig for the store with that URL.
func rig(url string) faults.Rig {
	return faults.Rig{
		TTL: faultTTL,
		// gRPC answers no call that its client has given up, and not the last frames of a connection.
		Unanswered: time.Second,
		Open:       func(ctx context.Context) (driver.Store, error) { return open(ctx, url) },
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
	}
}

// serverRig returns a rig on one server, with all that can be done to it.
func serverRig(t testing.TB, server *servers.Server) faults.Rig {
	t.Helper()
	raw := rawClient(t, server.URL())
	at := func(addr string) faults.Rig { return rig("etcd://" + addr) }
	r := at(server.Addr())
	r.Addr, r.At = server.Addr(), at
	remove := func(ctx context.Context, prefix string) error {
		_, err := raw.Delete(ctx, prefix, clientv3.WithPrefix())
		return err
	}
	r.Delete = func(ctx context.Context, name string) error { return remove(ctx, name+"/") }
	r.Flush = func(ctx context.Context) error { return remove(ctx, "") }
	return r
}

func onServer(t testing.TB) faults.Rig {
	t.Helper()
	return serverRig(t, servers.Run(t, servers.Etcd))
}

func onDebian(t testing.TB) faults.Rig {
	t.Helper()
	return serverRig(t, servers.Run(t, servers.EtcdDebian))
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
	r := onServer(t)
	r.TTL = silentTTL / 2 // the fault doubles it
	r.RepeatsCalls = true // over a new connection
	r.At = func(addr string) faults.Rig {
		at := rig("etcd://" + addr)
		at.TTL = silentTTL
		return at
	}
	faults.Run(t, r, network(t, true))
}

func TestServerForgets(t *testing.T) {
	t.Parallel()
	faults.RunEach(t, onServer, faults.Lost)
}
