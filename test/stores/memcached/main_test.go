// Package memcached tests memcachelock against a real memcached.
package memcached

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// addrEnv has the address of the server for other processes.
const addrEnv = "DLOCK_TEST_MEMCACHED"

func TestMain(m *testing.M) {
	open := func(context.Context) (driver.Store, error) { return open(os.Getenv(addrEnv)) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(open))
	}
	os.Exit(m.Run())
}

// open returns a store that trusts a server that has just started.
func open(addr string) (driver.Store, error) {
	return memcachelock.New(addr, &memcachelock.Options{RestartDelay: -1})
}

// again returns a command that runs the test binary for the server at addr.
func again(addr string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), addrEnv+"="+addr)
		return cmd
	}
}

// openNow opens a store until the end of the test.
func openNow(t *testing.T, addr string) driver.Store {
	t.Helper()
	store, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// take acquires a lock that is free.
func take(t *testing.T, store driver.Store, name string) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return grant
}
