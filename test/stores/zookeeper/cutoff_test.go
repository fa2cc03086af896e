package zookeeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCutOffFollowerIsLeft: a follower that does not hear the leader, and has not noticed it yet,
// answers reads, but neither writes nor renewals. The store goes to another server in time.
func TestCutOffFollowerIsLeft(t *testing.T) {
	t.Parallel()
	leaders := make(map[int][]*proxy.Proxy) // by follower
	const noticesInMinutes = 1800
	ensemble := servers.RunSplitEnsemble(t, noticesInMinutes, func(follower int, addr string) string {
		p := proxy.Run(t, addr)
		leaders[follower] = append(leaders[follower], p)
		return p.Addr()
	})
	leader, err := ensemble.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower := slices.IndexFunc(ensemble.Members, func(s *servers.Server) bool { return s != leader })
	const timeout = 24 * time.Second // the client pings every third of it
	server := proxy.Run(t, ensemble.Members[follower].Addr())
	acquire(t, open(t, leader.URL()), request("held"))
	var stores []driver.Store
	var waiters []driver.Request
	for i := range 8 {
		stores = append(stores, open(t, servers.ZooKeeper.URL(server.Addr())+"?timeout="+timeout.String()))
		waiters = append(waiters, queuedRequest(exclusive, "held"))
		mustWait(t, stores[i], waiters[i])
	}
	server.Redirect(leader.Addr()) // which the next connection leads to
	for _, p := range leaders[follower] {
		p.Hold()
		defer p.Deliver()
	}
	start := time.Now()
	inParallel(len(stores), func(i int) { // asks where its place is, and the leader whether that is true
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := stores[i].Acquire(ctx, waiters[i])
		took := time.Since(start)
		t.Logf("asked after %v: %v", took, err)
		if !errors.Is(err, driver.ErrHeld) || took > timeout/3 {
			t.Errorf("Acquire after %v: %v; want ErrHeld in less than a third of the session's timeout of %v", took, err, timeout)
		}
	})
	release(t, stores[0], acquire(t, stores[0], request("next")))
}
