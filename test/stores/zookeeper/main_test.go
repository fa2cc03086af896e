// Package zookeeper tests zklock against real servers.
package zookeeper

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/zklock"
)

func TestMain(m *testing.M) { bundle.Tests{Open: openURL, Agent: faults.RunAgent}.Main(m) }

func openURL(ctx context.Context, url string) (driver.Store, error) {
	return zklock.Open(ctx, url, nil)
}
