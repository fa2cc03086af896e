package subject

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var redlocks = []Subject{
	{"redlock/no-time-check", Wrong, "a majority of servers says yes, and nobody looks how long that took", openUntimed},
	{"redlock/redsync", Peer, "github.com/go-redsync/redsync: Redlock as the articles describe it", openRedsyncRedlock},
}

// redlockServers returns a client for each server.
func redlockServers(url string) (all []*redis.Client) {
	for addr := range strings.SplitSeq(strings.TrimPrefix(url, "redlock://"), ",") {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute, ContextTimeoutEnabled: true}))
	}
	return all
}

func openRedsyncRedlock(_ context.Context, c Config) (Locker, error) {
	var pools []redsyncredis.Pool
	for _, server := range redlockServers(c.URL) {
		pools = append(pools, pool.NewPool(server))
	}
	return lockRedsync(redsync.New(pools...), c), nil
}

// openUntimed asks one server after the other, and waits for each as long as it takes.
func openUntimed(_ context.Context, c Config) (Locker, error) {
	servers := redlockServers(c.URL)
	return lockFunc(func(ctx context.Context) (Held, error) {
		owner := rand.Text()
		unlock := func(ctx context.Context) error {
			for _, server := range servers {
				if err := deleteIfOwner(ctx, server, c.Name, owner); err != nil {
					return err
				}
			}
			return nil
		}
		err := pollLock(ctx, func() (bool, error) {
			votes := 0
			for _, server := range servers {
				if ok, err := server.SetNX(ctx, c.Name, owner, c.TTL).Result(); err == nil && ok {
					votes++
				}
			}
			if votes > len(servers)/2 {
				return true, nil
			}
			return false, unlock(ctx)
		})
		return held{unlock: unlock}, err
	}), nil
}
