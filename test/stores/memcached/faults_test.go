package memcached

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is so long that a lock that was renewed by mistake is noticed although the server ends locks
// late.
const faultTTL = 7 * time.Second

// on returns the store on a server, with all that can be done to it.
func on(server *servers.Server) bundle.Store {
	say := func(ctx context.Context, command, end string) error {
		_, err := converse(ctx, server.Addr(), command, end)
		return err
	}
	return bundle.Store{
		URL:          server.URL(),
		Open:         openURL,
		TTL:          faultTTL,
		Server:       server,
		RepeatsCalls: true, // over a new connection, when one that worked before is silent
		Leftovers:    func(ctx context.Context) ([]string, error) { return keys(ctx, server.Addr()) },
		Delete:       func(ctx context.Context, name string) error { return say(ctx, "delete dlock:"+name+"\r\n", "") },
		Flush:        func(ctx context.Context) error { return say(ctx, "flush_all\r\n", "") },
		Fill:         func(ctx context.Context) error { return fill(ctx, server.Addr()) },
		Drain:        func(ctx context.Context) error { return say(ctx, drain(), "HD") },
	}
}

// A server is filled with items of all sizes that a lock may have, more of each than the smallest
// server has memory for.
const (
	fillers    = 12_000
	fillerStep = 24
	fillerMax  = 480
)

func fill(ctx context.Context, addr string) error {
	for size := fillerStep; size <= fillerMax; size += fillerStep {
		var b strings.Builder
		value := strings.Repeat("x", size)
		for i := range fillers {
			fmt.Fprintf(&b, "ms fill:%d:%d %d q\r\n%s\r\n", size, i, size, value)
		}
		b.WriteString("mn\r\n")
		if _, err := converse(ctx, addr, b.String(), "MN"); err != nil {
			return err
		}
	}
	return nil
}

func drain() string {
	var b strings.Builder
	for size := fillerStep; size <= fillerMax; size += fillerStep {
		for i := range fillers {
			fmt.Fprintf(&b, "md fill:%d:%d q\r\n", size, i)
		}
	}
	b.WriteString("ms drained 1\r\nx\r\n")
	return b.String()
}

func onServer(args ...string) func(testing.TB) bundle.Store {
	return func(t testing.TB) bundle.Store {
		t.Helper()
		return on(servers.Run(t, servers.Memcached, args...))
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	faults.Run(t, onServer()(t), slices.Concat(faults.Leases, faults.Network))
}

func TestServerForgets(t *testing.T) {
	t.Parallel()
	faults.RunEach(t, onServer(), faults.Lost)
	faults.RunEach(t, onServer("-m", "2"), faults.Evicted)
}
