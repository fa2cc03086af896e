//go:build interop

package interop

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedissonSentinel runs the tests with a master and replicas. Redisson waits
// for the replicas to acknowledge, and listens on a replica.
func TestRedissonSentinel(t *testing.T) {
	t.Parallel()
	sentinel := servers.RunSentinel(t, servers.SentinelOptions{Args: withoutDisk})
	eachRedisson(t, func(t *testing.T, build string) {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: servers.MasterName, SentinelAddrs: sentinel.Sentinels.Addrs(),
		})
		t.Cleanup(func() { client.Close() })
		s := share(t, build, sentinel.URL(), client, sentinel.Servers...)
		s.testKinds(t)
	})
}

// TestRedissonCluster runs the tests with three masters. Redisson publishes and
// listens only within the shard of the lock.
func TestRedissonCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.RunCluster(t, withoutDisk...)
	eachRedisson(t, func(t *testing.T, build string) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Nodes.Addrs()})
		t.Cleanup(func() { client.Close() })
		s := share(t, build, cluster.URL(), client, cluster.Nodes...)
		s.testKinds(t)
		t.Run("Java listens within the shard", func(t *testing.T) {
			t.Parallel()
			redissonSharded(t, s)
		})
	})
}

// redissonSharded checks that Java listens within the shard. That is why dlock
// publishes in both ways.
func redissonSharded(t *testing.T, s *shared) {
	name := s.nameOf("sharded")
	holder, waiter := s.javaThread(t, "lock", name), s.javaThread(t, "lock", name)
	holder.locks(longTTL)
	waiter.beginLock()
	s.awaitSubscriber(t, name)
	for _, node := range s.nodes {
		general, err := node.PubSubChannels(t.Context(), "*"+name+"*").Result()
		if err != nil || len(general) > 0 {
			t.Errorf("Java listens to %q (%v), want sharded channels only", general, err)
		}
	}
	holder.unlocks()
	waiter.gets()
	waiter.unlocks()
}
