// Package redis tests redislock against real servers.
package redis

import (
	"context"
	"os"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/redis/go-redis/v9/logging"
)

// urlEnv contains the store's URL for other processes.
const urlEnv = "DLOCK_TEST_REDIS_STORE"

func TestMain(m *testing.M) {
	logging.Disable() // the client's: these tests provoke errors
	open := func(ctx context.Context) (driver.Store, error) { return open(ctx, os.Getenv(urlEnv)) }
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
