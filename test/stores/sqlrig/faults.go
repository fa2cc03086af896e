package sqlrig

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// FaultTTL is long enough for a machine that is busy.
const FaultTTL = 2 * time.Second * Slowdown

// Rig is the store of that URL, with what can be done to it.
func (d *Database) Rig(t testing.TB, server *servers.Server, raw string) faults.Rig {
	t.Helper()
	admin := d.DB(t, raw)
	at := func(addr string) faults.Rig {
		there := At(raw, addr)
		return faults.Rig{
			TTL:     FaultTTL,
			Open:    func(ctx context.Context) (driver.Store, error) { return d.Store(ctx, there) },
			Command: worker(there),
		}
	}
	r := at(server.Addr())
	r.Addr, r.At, r.SetClock = server.Addr(), at, server.SetClock
	r.KillConnections = func(ctx context.Context) error { return d.Kill(ctx, admin) }
	r.Restart = func() error { return errors.Join(server.Kill(), server.Restart()) }
	r.Delete = func(ctx context.Context, name string) error {
		_, err := admin.ExecContext(ctx, d.Free, name)
		return err
	}
	return r
}

// Faults are those of clients, of the network, and of operators who free a lock
// by hand.
func (d *Database) Faults(t *testing.T, parameters string) {
	t.Helper()
	list := slices.Concat(faults.Leases, faults.Fair, faults.Network, faults.HandOver)
	for _, lost := range faults.Lost {
		if lost.Name == "a lock that is deleted while it is held" {
			list = append(list, lost)
		}
	}
	faults.Run(t, d.Rig(t, d.server, d.URL(t, parameters)), list)
}

// Connections are ended by the server, each time all that there are to the
// database.
func (d *Database) Connections(t *testing.T, parameters string) {
	t.Helper()
	faults.RunEach(t, func(t testing.TB) faults.Rig {
		return d.Rig(t, d.server, d.URL(t, parameters))
	}, faults.Connections)
}

// Contention is of 32 contenders on an empty database, and of many for several
// names, at whatever isolation their connections have.
func (d *Database) Contention(t *testing.T, parameters string) {
	t.Helper()
	for _, isolation := range d.Isolations {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			faults.RunEach(t, func(t testing.TB) faults.Rig {
				return d.Rig(t, d.server, d.URL(t, parameters, isolation, "max_open=2")) // all have to fit on the server
			}, faults.Contention)
		})
	}
}

// Restarts are crashes of the server.
func (d *Database) Restarts(t *testing.T, parameters string) {
	t.Helper()
	faults.RunEach(t, func(t testing.TB) faults.Rig {
		server := servers.Run(t, d.Kind)
		return d.Rig(t, server, d.On(t, server, parameters))
	}, faults.Restarts)
}

// Failover is to a replica that has not heard of a lock.
func (d *Database) Failover(t *testing.T, parameters string) {
	t.Helper()
	raw, failover := faults.RunPair(t, d.Pair)
	raw = With(raw, parameters)
	faults.Run(t, faults.Rig{
		TTL:      FaultTTL,
		Open:     func(ctx context.Context) (driver.Store, error) { return d.Store(ctx, raw) },
		Command:  worker(raw),
		Failover: failover,
	}, faults.RepeatedTokens)
}

// Clocks are the faults of the server's clock and of the clients'.
func (d *Database) Clocks(t *testing.T, parameters string) {
	t.Helper()
	// It is killed in the end: its signal handler may look at the clock while
	// the library that moves it is at work.
	kind := servers.WithClock(d.Kind)
	kind.StopSignal = syscall.SIGKILL
	faults.RunEach(t, func(t testing.TB) faults.Rig {
		server := servers.Run(t, kind)
		return d.Rig(t, server, d.On(t, server, parameters))
	}, slices.Concat(faults.ServerClock, faults.ClientClock))
}

var (
	mixSeed = flag.Uint64("mixseed", 0, "the seed of TestHistory; 0 takes any")
	mixTime = flag.Duration("mixtime", 10*time.Second, "how long TestHistory runs")
)

// History does many faults at random to worker processes, writes down what they
// did, and compares it with what is promised.
func (d *Database) History(t *testing.T, parameters string) {
	t.Helper()
	seed := *mixSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	raw := d.URL(t, parameters)
	d.Opened(t, raw) // so that there are tables when a lock is to be freed in them
	r := d.Rig(t, d.server, raw)
	r.TTL = time.Second
	mix := faults.Mix{Seed: seed, Time: *mixTime, Workers: 4, Names: []string{"name-1", "name-2"}, Hold: r.TTL / 2}
	for _, violation := range mix.Run(t, r) {
		t.Error(violation)
	}
	if t.Failed() {
		t.Logf("again: go test -run TestHistory -mixseed %d", seed)
	}
}
