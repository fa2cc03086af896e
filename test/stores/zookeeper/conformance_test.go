package zookeeper

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// TestConformance runs the kit on one server, in both orders and for exclusive locks alone, and on
// an ensemble.
func TestConformance(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.ZooKeeperReaping)
		t.Run("fair", func(t *testing.T) { conform(t, server.URL(), "/fair?order=fair", server.Addr()) })
		t.Run("unfair", func(t *testing.T) { conform(t, server.URL(), "/unfair?order=unfair", server.Addr()) })
		t.Run("exclusive", func(t *testing.T) { conform(t, server.URL(), "/exclusive?modes=exclusive", server.Addr()) })
	})
	t.Run("ensemble", func(t *testing.T) {
		t.Parallel()
		conform(t, servers.RunEnsemble(t).URL(), "?order=fair", "")
	})
}

const (
	kitTTL = 800 * time.Millisecond
	// kitSession is long enough for the TTLs with which the kit tries again on a busy
	// machine: up to four times kitTTL.
	kitSession = 5 * time.Second
)

// conform runs the kit. addr is the address of the only server, or empty for an ensemble.
func conform(t *testing.T, url, rest, addr string) {
	t.Helper()
	url += rest + "&timeout=" + kitSession.String()
	var delayed func(context.Context) (driver.Store, func() func(), error)
	if addr != "" {
		delayed = proxy.Delayed(t, addr, func(ctx context.Context, at string) (driver.Store, error) {
			return zklock.Open(ctx, strings.Replace(url, addr, at, 1), nil)
		})
	}
	drivertest.Run(t, drivertest.Config{
		Delayed:  delayed,
		TTL:      kitTTL,
		Session:  kitSession,
		Parallel: 8,
		Open:     func(ctx context.Context) (driver.Store, error) { return zklock.Open(ctx, url, nil) },
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
	})
}
