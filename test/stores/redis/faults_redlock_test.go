package redis

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedlockFaults runs before the parallel tests: ten servers, each with a time limit per call,
// are enough load.
func TestRedlockFaults(t *testing.T) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { faults.RunEach(t, onRedlock, faults.Redlock) })
	both.Go(func() { faults.Run(t, onRedlock(t), faults.Leases) })
}

// onRedlock makes a store with five servers.
func onRedlock(t testing.TB) bundle.Store {
	t.Helper()
	group := servers.RunGroup(t, 5, servers.Redis, inMemory...)
	s := store("redlock://" + strings.Join(group.Addrs(), ","))
	s.TTL = max(s.TTL, 5*memberTimeout) // leaves time for a member that does not answer
	for _, server := range group {
		s.Members = append(s.Members, on(t, server, "plain"))
	}
	return s
}

// TestRedlockClosesWithAHangingMember: Close does not wait for the member.
func TestRedlockClosesWithAHangingMember(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	store, err := open(t.Context(), "redlock://"+strings.Join(group.Addrs(), ",")+"?"+patient)
	if err != nil {
		t.Fatal(err)
	}
	if err := group[0].Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group[0].Resume(); err != nil {
			t.Error(err)
		}
	})
	acquire(t, store, "x")
	if n := len(listed(t, store, "")); n != 1 {
		t.Errorf("%d locks are listed; want one", n)
	}
	began := time.Now()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("Close took %v; a member may take %v, and its client a minute", took, memberTimeout)
	}
}

// TestRedlockRejectsOneServerTwice: two addresses of one server would have two votes.
func TestRedlockRejectsOneServerTwice(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 2, servers.Redis, inMemory...)
	again := strings.Replace(group[0].Addr(), "127.0.0.1", "localhost", 1)
	store := openRedlock(t, group[0].Addr(), group[1].Addr(), again)
	_, err := store.Acquire(t.Context(), driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: time.Minute})
	if !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), group[0].Addr()) || !strings.Contains(err.Error(), again) {
		t.Errorf("Acquire: %v; want ErrMisconfigured that names %s and %s", err, group[0].Addr(), again)
	}
}
