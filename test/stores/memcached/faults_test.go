package memcached

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is so long that a lock that was renewed by mistake is noticed although the server ends locks
// late.
const faultTTL = 7 * time.Second

func rig(addr string) faults.Rig {
	return faults.Rig{
		TTL:     faultTTL,
		Open:    func(context.Context) (driver.Store, error) { return open(addr) },
		Command: again(addr),
		Addr:    addr,
		At:      rig,
		// Over a new connection, when one that worked before is silent.
		RepeatsCalls: true,
		Delete: func(ctx context.Context, name string) error {
			_, err := converse(ctx, addr, "delete dlock:"+name+"\r\n", "")
			return err
		},
		Flush: func(ctx context.Context) error {
			_, err := converse(ctx, addr, "flush_all\r\n", "")
			return err
		},
		Fill: func(ctx context.Context) error { return fill(ctx, addr) },
		Drain: func(ctx context.Context) error {
			_, err := converse(ctx, addr, drain(), "HD")
			return err
		},
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

func onServer(args ...string) func(testing.TB) faults.Rig {
	return func(t testing.TB) faults.Rig {
		t.Helper()
		return rig(servers.Run(t, servers.Memcached, args...).Addr())
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
