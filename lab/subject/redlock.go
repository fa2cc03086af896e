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
	return &redsyncLocker{redsync.New(pools...), c}, nil
}

func openUntimed(_ context.Context, c Config) (Locker, error) {
	return &untimedLocker{redlockServers(c.URL), c}, nil
}

// untimedLocker asks one server after the other, and waits for each as long as it takes.
type untimedLocker struct {
	servers []*redis.Client
	config  Config
}

func (l *untimedLocker) Lock(ctx context.Context) (Held, error) {
	h := &untimedHeld{l, rand.Text()}
	err := pollLock(ctx, func() (bool, error) {
		votes := 0
		for _, server := range l.servers {
			if ok, err := server.SetNX(ctx, l.config.Name, h.owner, l.config.TTL).Result(); err == nil && ok {
				votes++
			}
		}
		if votes > len(l.servers)/2 {
			return true, nil
		}
		return false, h.Unlock(ctx)
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

type untimedHeld struct {
	locker *untimedLocker
	owner  string
}

func (h *untimedHeld) Believes() bool { return true }
func (h *untimedHeld) Token() uint64  { return 0 }

func (h *untimedHeld) Unlock(ctx context.Context) error {
	for _, server := range h.locker.servers {
		if err := deleteIfOwner(ctx, server, h.locker.config.Name, h.owner); err != nil {
			return err
		}
	}
	return nil
}
