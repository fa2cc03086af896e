//go:build interop

package interop

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/test/servers"
)

// TestRedissonSentinel: the same with a master and replicas, where Redisson waits
// for the replicas to acknowledge, and may listen on one of them.
func TestRedissonSentinel(t *testing.T) {
	t.Parallel()
	sentinel := servers.RunSentinel(t, servers.SentinelOptions{})
	eachRedisson(t, func(t *testing.T, build string) {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: servers.MasterName, SentinelAddrs: sentinel.Sentinels.Addrs(),
		})
		t.Cleanup(func() { client.Close() })
		s := share(t, build, sentinel.URL(), client, sentinel.Servers...)
		s.testKinds(t)
	})
}
