package sqlservers

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is long enough for a machine that is busy.
const faultTTL = 2 * time.Second * slowdown

// bundle is the store with what can be done to it.
func (s target) bundle(t testing.TB, server *servers.Server) bundle.Store {
	t.Helper()
	admin := s.admin(t)
	return bundle.Store{
		URL:             s.url,
		Open:            openURL,
		TTL:             faultTTL,
		Server:          server,
		Leftovers:       func(ctx context.Context) ([]string, error) { return s.leftovers(ctx, admin) },
		KillConnections: func(ctx context.Context) error { return s.kill(ctx, admin) },
		Delete: func(ctx context.Context, name string) error {
			_, err := admin.ExecContext(ctx, s.free, name)
			return err
		},
	}
}

// shared is the store on the server that all tests share.
func (s target) shared(t testing.TB) bundle.Store { return s.bundle(t, s.server(t)) }

// TestFaults: faults of clients, of the network, and of operators: a lock is freed by hand.
// They keep a server busy enough without other tests.
func TestFaults(t *testing.T) {
	list := slices.Concat(faults.Leases, faults.Fair, faults.Network, faults.HandOver)
	for _, lost := range faults.Lost {
		if lost.Name == "a lock that is deleted while it is held" {
			list = append(list, lost)
		}
	}
	eachAlone(t, func(t *testing.T, d *database) {
		d.eachScheme(t, func(t *testing.T, s target) { faults.Run(t, s.shared(t), list) })
	})
}

// TestConnections: the server ends all connections to the database.
func TestConnections(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		faults.RunEach(t, func(t testing.TB) bundle.Store { return s.target(t, "scheme=row").shared(t) }, faults.Connections)
	})
}

// TestContention: 32 contenders on an empty database, and many for several names, at
// whatever isolation their connections have.
func TestContention(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		for _, isolation := range s.isolations {
			t.Run(isolation, func(t *testing.T) {
				t.Parallel()
				faults.RunEach(t, func(t testing.TB) bundle.Store {
					return s.target(t, "scheme="+s.scheme(), isolation, "max_open=2").shared(t) // all have to fit on the server
				}, faults.Contention)
			})
		}
	})
}

// TestRestarts: crashes of the server.
func TestRestarts(t *testing.T) {
	onRow(t, func(t *testing.T, s target) { s.onOwnServers(t, s.kind, faults.Restarts) })
}

// TestClocks: faults of the server's clock and of the clients'.
func TestClocks(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		// It is killed in the end: its signal handler may look at the clock while
		// the library that moves it is at work.
		kind := servers.WithClock(s.kind)
		kind.StopSignal = syscall.SIGKILL
		s.onOwnServers(t, kind, slices.Concat(faults.ServerClock, faults.ClientClock))
	})
}

// onOwnServers tries each fault on a server of its own.
func (s target) onOwnServers(t *testing.T, kind *servers.Kind, list []faults.Fault) {
	t.Helper()
	faults.RunEach(t, func(t testing.TB) bundle.Store {
		server := servers.Run(t, kind)
		return s.on(t, server, "scheme="+s.scheme()).bundle(t, server)
	}, list)
}

// TestFailover: a replica that has not heard of a lock takes over.
func TestFailover(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		raw, failover := faults.RunPair(t, s.pair)
		there := target{s.database, raw}.with("scheme=row")
		faults.Run(t, bundle.Store{URL: there.url, Open: openURL, TTL: faultTTL, Failover: failover}, faults.RepeatedTokens)
	})
}

var (
	mixSeed = flag.Uint64("mixseed", 0, "the seed of TestHistory; 0 takes any")
	mixTime = flag.Duration("mixtime", 10*time.Second, "how long TestHistory runs")
)

// TestHistory causes many faults at random to worker processes, records what they did,
// and compares it with what is promised.
func TestHistory(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		seed := *mixSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		s.open(t) // so that there are tables when a lock is to be freed in them
		store := s.shared(t)
		store.TTL = time.Second
		mix := faults.Mix{Seed: seed, Time: *mixTime, Workers: 4, Names: []string{"name-1", "name-2"}, Hold: store.TTL / 2}
		for _, violation := range mix.Run(t, store) {
			t.Error(violation)
		}
		if t.Failed() {
			t.Logf("again: go test -run TestHistory -mixseed %d", seed)
		}
	})
}
