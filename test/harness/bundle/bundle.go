// Package bundle describes a store once for all its tests. From a [Store] follow the conformance kit
// ([Store.Conform]), the faults (package faults takes it as it is), and the processes that both start:
//
//	func TestMain(m *testing.M) { bundle.Tests{Open: open, Agent: faults.RunAgent}.Main(m) }
//
//	func onServer(t testing.TB) bundle.Store {
//		server := servers.Run(t, servers.Redis)
//		return bundle.Store{URL: server.URL(), Open: open, Server: server, TTL: 2 * time.Second}
//	}
//
//	func TestConformance(t *testing.T) { onServer(t).Conform(t, drivertest.Config{TTL: 400 * time.Millisecond}) }
//	func TestFaults(t *testing.T)      { faults.Run(t, onServer(t), faults.Leases) }
package bundle

import (
	"context"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Store is a store under test, with its servers and what can be done to them. Every store has the first three
// fields. The others are abilities that only some tests need; a test fails if one that it needs is missing.
type Store struct {
	// URL names the store to Open, in every process.
	URL  string
	Open func(ctx context.Context, url string) (driver.Store, error)
	// TTL is the TTL of the locks that faults disturb.
	TTL time.Duration

	// Server is the only server, whose address is a part of URL. Addr is for a server that this process has
	// not started.
	Server *servers.Server
	Addr   string

	// Leftovers is that of drivertest.Config.
	Leftovers func(ctx context.Context) ([]string, error)

	// RepeatsCalls reports that the store repeats a call whose answer is lost, so that its callers may not
	// notice the loss.
	RepeatsCalls bool
	// Unanswered is how long the server takes at most for a request that it does not answer. Zero is a
	// server that answers all.
	Unanswered time.Duration
	// Probe is how long a store whose locks are bound to a connection takes to notice that it is gone.
	Probe time.Duration

	// Delete removes one lock from the server, and Flush removes everything, as an operator might.
	Delete func(ctx context.Context, name string) error
	Flush  func(ctx context.Context) error
	// Fill uses up the memory of the server, and Drain frees it. Between two calls of Fill other clients
	// are served.
	Fill, Drain func(ctx context.Context) error
	// KillConnections ends the connections of all clients, from the server's side.
	KillConnections func(ctx context.Context) error

	// Failover is for stores whose server has replicas. Partition is for stores whose server can be
	// separated from its replicas.
	Failover  *Failover
	Partition *Partition
	// Members are the servers of a Redlock, each as a store of its own.
	Members []Store
}

// Failover holds the actions on a server with replicas.
type Failover struct {
	// Isolate cuts the leader off from its replicas: they do not receive later writes.
	Isolate func()
	// Kill kills the leader, and returns when another server has taken over.
	Kill func(ctx context.Context) error
	// NotAcknowledged is the error of a store whose replicas do not acknowledge a write in time.
	NotAcknowledged error
}

// Partition holds the actions on a leader that can be cut off, together with some of its clients, from its
// replicas and from the servers that appoint a new leader.
type Partition struct {
	// Cut cuts the leader off.
	Cut func()
	// Inside is the store of the clients that are cut off together with the leader.
	Inside Store
	// RejectsWithin is how long the leader takes to notice and to reject all writes.
	RejectsWithin time.Duration
}

// addr returns the address of the only server, or "".
func (s Store) addr() string {
	if s.Server != nil {
		return s.Server.Addr()
	}
	return s.Addr
}

// Proxied puts a proxy in front of the only server, and returns the store at the address of the proxy.
func (s Store) Proxied(t testing.TB) (Store, *proxy.Proxy) {
	t.Helper()
	p := proxy.Run(t, s.addr())
	return s.at(t, p), p
}

func (s Store) at(t testing.TB, p *proxy.Proxy) Store {
	t.Helper()
	if s.addr() == "" || !strings.Contains(s.URL, s.addr()) {
		t.Fatalf("no proxy is possible: %q is not the address of the only server of %s", s.addr(), s.URL)
	}
	s.URL = strings.ReplaceAll(s.URL, s.addr(), p.Addr())
	return s
}

// Command returns a command that starts this test binary again, for this store.
func (s Store) Command() *exec.Cmd { return child.Self(URLVariable + "=" + s.URL) }

// Agent starts an agent for this store.
func (s Store) Agent(receive func(line string)) (*child.Process, error) {
	cmd := s.Command()
	cmd.Env = append(cmd.Env, roleVariable+"="+agentRole)
	return child.Start(cmd, receive)
}

// SetClock sets the offset of the wall clock that the server sees.
func (s Store) SetClock(t testing.TB, offset time.Duration) {
	t.Helper()
	if s.Server == nil {
		t.Fatal("the store has no server whose clock can be moved")
	}
	if err := s.Server.SetClock(offset); err != nil {
		t.Fatal(err)
	}
}

// Conform runs the conformance kit, with what config does not say: how to open the store, also in another
// process and over a slow network, and what is left.
func (s Store) Conform(t *testing.T, config drivertest.Config) {
	t.Helper()
	if config.Open == nil {
		config.Open = func(ctx context.Context) (driver.Store, error) { return s.Open(ctx, s.URL) }
	}
	if s.addr() != "" {
		config.Delayed = s.delayed(t)
	}
	config.Worker, config.Leftovers = s.Command, s.Leftovers
	drivertest.Run(t, config)
}

// delayed is drivertest.Config.Delayed. It starts all proxies at once, because the kit checks for goroutines
// that a store leaves behind.
func (s Store) delayed(t testing.TB) func(context.Context) (driver.Store, func() func(), error) {
	t.Helper()
	const (
		clauses = 8               // that may delay a network at the same time, each through a proxy of its own
		limit   = 5 * time.Second // for requests that arrive late
	)
	var stores [clauses]Store
	var proxies [clauses]*proxy.Proxy
	for i := range proxies {
		stores[i], proxies[i] = s.Proxied(t)
	}
	var used atomic.Int64
	return func(ctx context.Context) (driver.Store, func() func(), error) {
		i := int(used.Add(1)-1) % clauses
		store, err := s.Open(ctx, stores[i].URL)
		if err != nil {
			return nil, nil, err
		}
		return store, func() func() {
			deliver := proxies[i].Lag()
			return func() { deliver(limit) }
		}, nil
	}
}
