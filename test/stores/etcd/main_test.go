// Package etcd tests etcdlock against real servers.
package etcd

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// urlEnv has the URL of the store for other processes.
const urlEnv = bundle.URLVariable

func TestMain(m *testing.M) {
	bundle.Tests{Open: open, Agent: faults.RunAgent, Parallel: 4}.Main(m)
}

func open(ctx context.Context, url string) (driver.Store, error) {
	return etcdlock.Open(ctx, url, nil)
}
