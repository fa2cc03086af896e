// Package redis tests redislock against real servers.
package redis

import (
	"context"
	"os"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/faults"
)

// urlEnv tells other processes where the server is.
const urlEnv = "DLOCK_TEST_REDIS_STORE"

func TestMain(m *testing.M) {
	open := func(context.Context) (driver.Store, error) { return redislock.Open(os.Getenv(urlEnv)) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.PuppetEnv) != "":
		os.Exit(faults.Play(open))
	}
	os.Exit(m.Run())
}
