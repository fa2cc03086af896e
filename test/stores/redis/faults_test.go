package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// faultTTL is long enough for a machine that is busy.
const faultTTL = 2 * time.Second

// rig is the store with that URL.
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

// serverRig is a rig on one server, with all that can be done to it.
func serverRig(t testing.TB, server *servers.Server, protocol string) faults.Rig {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	at := func(addr string) faults.Rig { return rig(fmt.Sprintf("redis://%s/0?protocol=%s", addr, protocol)) }
	r := at(server.Addr())
	r.Addr, r.At = server.Addr(), at
	r.Delete = func(ctx context.Context, name string) error { return admin.Del(ctx, name).Err() }
	r.Flush = func(ctx context.Context) error { return admin.FlushAll(ctx).Err() }
	// No memory is enough for a limit of one byte, and all is for none.
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

// inMemory are the arguments of servers that write nothing to disk. None of these
// faults asks for data that survives, and a disk that many servers sync to can
// stand still for longer than a TTL.
var inMemory = []string{"--appendonly", "no"}

// onServer makes rigs on servers of their own.
func onServer(protocol string, kind *servers.Kind, args ...string) func(t testing.TB) faults.Rig {
	return func(t testing.TB) faults.Rig {
		t.Helper()
		return serverRig(t, servers.Run(t, kind, append(args, inMemory...)...), protocol)
	}
}

// eachProtocol tries both at the same time: like the faults, they wait more than
// they compute.
func eachProtocol(t *testing.T, try func(t *testing.T, protocol string)) {
	t.Helper()
	var both sync.WaitGroup
	for _, protocol := range protocols {
		both.Go(func() { t.Run(protocol, func(t *testing.T) { try(t, protocol) }) })
	}
	both.Wait()
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
		faults.RunEach(t, onServer(protocol, servers.Redis), slices.Concat(faults.Connections, faults.Contention, faults.Passing))
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

// withClock is a server whose clock moves. It is killed in the end, because one
// that is asked to end now and then does not: its signal handler looks at the
// clock, perhaps while the library that moves it is at work.
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
