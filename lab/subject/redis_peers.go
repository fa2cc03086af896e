package subject

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var redisPeers = []Subject{
	{"redis/redsync", Peer, "github.com/go-redsync/redsync; its users look at Until before they write", openRedsync},
	{"sentinel/redsync", Peer, "github.com/go-redsync/redsync over one master", openRedsync},
	{"cluster/redsync", Peer, "github.com/go-redsync/redsync over a cluster", openRedsync},
	{"redis/bsm", Peer, "github.com/bsm/redislock, which does not renew", openBSM},
	{"redis/rueidislock", Peer, "github.com/redis/rueidis/rueidislock, which renews and ends a context", openRueidislock},
}

func openRedsync(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	if err != nil {
		return nil, err
	}
	return lockRedsync(redsync.New(pool.NewPool(client)), c), nil
}

func lockRedsync(sync *redsync.Redsync, c Config) Locker {
	return lockFunc(func(ctx context.Context) (Held, error) {
		mutex := sync.NewMutex(c.Name, redsync.WithExpiry(c.TTL), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(again))
		return held{
			believes: func() bool { return time.Now().Before(mutex.Until()) },
			unlock: func(ctx context.Context) error {
				released, err := mutex.UnlockContext(ctx)
				if err == nil && !released {
					err = errors.New("not held")
				}
				return err
			},
		}, mutex.LockContext(ctx)
	})
}

func openBSM(_ context.Context, c Config) (Locker, error) {
	options, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	locks := redislock.New(redis.NewClient(options))
	return lockFunc(func(ctx context.Context) (Held, error) {
		lock, err := locks.Obtain(ctx, c.Name, c.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(again)})
		if err != nil {
			return nil, err
		}
		return held{unlock: lock.Release}, nil // only a call to the server would tell that it is lost
	}), nil
}

func openRueidislock(_ context.Context, c Config) (Locker, error) {
	options, err := rueidis.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: options, KeyMajority: 1, KeyValidity: c.TTL, ExtendInterval: c.TTL / 2, TryNextAfter: c.TTL, NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return lockFunc(func(ctx context.Context) (Held, error) {
		// The context of the lock ends with that of the call, so it must not have its limit.
		waiting, stop := context.WithCancel(context.Background())
		got, failed := make(chan Held, 1), make(chan error, 1)
		go func() {
			lock, unlock, err := locks.WithContext(waiting, c.Name)
			if err != nil {
				failed <- err
				return
			}
			got <- held{believes: alive(lock), unlock: func(context.Context) error {
				unlock()
				stop()
				return nil
			}}
		}()
		select {
		case h := <-got:
			return h, nil
		case err := <-failed:
			stop()
			return nil, err
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}
	}), nil
}
