// Package redis tests redislock against real servers.
package redis

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client's: these tests provoke errors
	bundle.Tests{Open: open, Agent: faults.RunAgent}.Main(m)
}
