// Package etcd tests etcdlock against real servers.
package etcd

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// urlEnv has the URL of the store for other processes.
const urlEnv = "DLOCK_TEST_ETCD_STORE"

// atOnce is how many tests run in parallel. They wait more than they compute.
const atOnce = "4"

func TestMain(m *testing.M) {
	open := func(ctx context.Context) (driver.Store, error) { return open(ctx, os.Getenv(urlEnv)) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(open))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	status := m.Run()
	command.Remove()
	os.Exit(status)
}

func open(ctx context.Context, url string) (driver.Store, error) {
	return etcdlock.Open(ctx, url, nil)
}
