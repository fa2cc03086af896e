package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// faultTTL is long enough for a busy machine.
const faultTTL = 2 * time.Second

// rig returns a rig for the store with that URL.
func rig(url string) faults.Rig {
	return faults.Rig{
		TTL:  faultTTL,
		Open: func(ctx context.Context) (driver.Store, error) { return open(ctx, url) },
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
	}
}

// serverRig returns a rig for one server, with all faults that the server offers.
func serverRig(t testing.TB, server *servers.Server, protocol string) faults.Rig {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	at := func(addr string) faults.Rig { return rig(fmt.Sprintf("redis://%s/0?protocol=%s", addr, protocol)) }
	r := at(server.Addr())
	r.Addr, r.At = server.Addr(), at
	r.Delete = func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() }
	r.Flush = func(ctx context.Context) error { return admin.FlushAll(ctx).Err() }
	// A limit of one byte is always exceeded; zero is no limit.
	r.Fill = func(ctx context.Context) error { return admin.ConfigSet(ctx, "maxmemory", "1").Err() }
	r.Drain = func(ctx context.Context) error { return admin.ConfigSet(ctx, "maxmemory", "0").Err() }
	r.SetClock = server.SetClock
	r.KillConnections = func(ctx context.Context) error {
		return errors.Join(
			admin.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err(),
			admin.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	}
	return r
}

// onServer returns a function that makes rigs, each with a server of its own.
func onServer(protocol string, kind *servers.Kind, args ...string) func(t testing.TB) faults.Rig {
	return func(t testing.TB) faults.Rig {
		t.Helper()
		return serverRig(t, servers.Run(t, kind, append(args, inMemory...)...), protocol)
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
