// Package memcached tests memcachelock against a real memcached.
package memcached

import (
	"context"
	"os"
	"os/exec"
	"testing"

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
