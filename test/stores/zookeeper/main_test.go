// Package zookeeper tests zklock against real servers.
package zookeeper

import (
	"context"
	"os"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/zklock"
)

// urlEnv contains the URL of the store for child processes.
const urlEnv = "DLOCK_TEST_ZOOKEEPER_STORE"

func TestMain(m *testing.M) {
	open := func(ctx context.Context) (driver.Store, error) { return zklock.Open(ctx, os.Getenv(urlEnv), nil) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(open))
	}
	status := m.Run()
	command.Remove()
	os.Exit(status)
}
