package zookeeper

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestConformance runs the kit on one server, in both orders and for exclusive locks alone, and on
// an ensemble.
func TestConformance(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.ZooKeeperReaping)
		t.Run("fair", func(t *testing.T) { conform(t, server.URL()+"/fair?order=fair", server) })
		t.Run("unfair", func(t *testing.T) { conform(t, server.URL()+"/unfair?order=unfair", server) })
		t.Run("exclusive", func(t *testing.T) { conform(t, server.URL()+"/exclusive?modes=exclusive", server) })
	})
	t.Run("ensemble", func(t *testing.T) {
		t.Parallel()
		conform(t, servers.RunEnsemble(t).URL()+"?order=fair", nil)
	})
}

const (
	kitTTL = 800 * time.Millisecond
	// kitSession is long enough for the TTLs with which the kit tries again on a busy
	// machine: up to four times kitTTL.
	kitSession = 5 * time.Second
)

// conform runs the kit. server is nil for an ensemble.
func conform(t *testing.T, url string, server *servers.Server) {
	t.Helper()
	bundle.Store{URL: url + "&timeout=" + kitSession.String(), Open: openURL, Server: server}.
		Conform(t, drivertest.Config{TTL: kitTTL, Session: kitSession, Parallel: 8})
}
