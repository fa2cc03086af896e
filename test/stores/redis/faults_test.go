package redis

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is long enough for a busy machine.
const faultTTL = 2 * time.Second

// store returns the store with that URL.
func store(url string) bundle.Store { return bundle.Store{URL: url, Open: open, TTL: faultTTL} }

// on returns the store on one server, with all faults that the server offers.
func on(t testing.TB, server *servers.Server, protocol string) bundle.Store {
	t.Helper()
	admin := clients(t, server.Addr())[0]
	s := store(server.URL() + "?protocol=" + protocol)
	s.Server = server
	s.Delete = func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() }
	s.Flush = func(ctx context.Context) error { return admin.FlushAll(ctx).Err() }
	// A limit of one byte is always exceeded; zero is no limit.
	s.Fill = func(ctx context.Context) error { return admin.ConfigSet(ctx, "maxmemory", "1").Err() }
	s.Drain = func(ctx context.Context) error { return admin.ConfigSet(ctx, "maxmemory", "0").Err() }
	s.KillConnections = func(ctx context.Context) error {
		return errors.Join(
			admin.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err(),
			admin.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	}
	return s
}

// onServer returns a function that makes stores, each with a server of its own.
func onServer(protocol string, kind *servers.Kind, args ...string) func(t testing.TB) bundle.Store {
	return func(t testing.TB) bundle.Store {
		t.Helper()
		return on(t, servers.Run(t, kind, append(args, inMemory...)...), protocol)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		list := slices.Concat(faults.Leases, faults.Network)
		if protocol == "redisson" {
			list = append(list, faults.Fair...)
		}
		faults.Run(t, onServer(protocol, servers.Redis)(t), list)
	})
}

func TestConnectionsAndContention(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		faults.RunEach(t, onServer(protocol, servers.Redis), slices.Concat(faults.Connections, faults.Contention, faults.HandOver))
	})
}

func TestServerForgets(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		faults.RunEach(t, onServer(protocol, servers.Redis), faults.Lost)
		faults.RunEach(t, onServer(protocol, servers.Redis, "--maxmemory-policy", "noeviction"), faults.Full)
		for _, policy := range []string{"volatile-lru", "allkeys-lru"} {
			t.Run(policy, func(t *testing.T) {
				faults.RunEach(t, onServer(protocol, servers.Redis, "--maxmemory-policy", policy), faults.Evicted)
			})
		}
	})
}

// withClock is a server whose clock can be moved. It is killed at the end, because SIGTERM
// sometimes does not end it: its signal handler reads the clock, perhaps while the library that
// moves the clock is at work.
func withClock() *servers.Kind {
	kind := servers.WithClock(servers.Redis)
	kind.StopSignal = syscall.SIGKILL
	return kind
}

func TestClocks(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		faults.RunEach(t, onServer(protocol, withClock()), slices.Concat(faults.ServerClock, faults.ClientClock))
	})
}
