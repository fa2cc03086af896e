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
	return &redsyncLocker{redsync.New(pool.NewPool(client)), c}, nil
}

type redsyncLocker struct {
	sync   *redsync.Redsync
	config Config
}

func (l *redsyncLocker) Lock(ctx context.Context) (Held, error) {
	mutex := l.sync.NewMutex(l.config.Name, redsync.WithExpiry(l.config.TTL), redsync.WithTries(math.MaxInt),
		redsync.WithRetryDelay(again))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{mutex}, nil
}

type redsyncHeld struct{ mutex *redsync.Mutex }

func (h redsyncHeld) Believes() bool { return time.Now().Before(h.mutex.Until()) }
func (h redsyncHeld) Token() uint64  { return 0 }

func (h redsyncHeld) Unlock(ctx context.Context) error {
	released, err := h.mutex.UnlockContext(ctx)
	if err == nil && !released {
		err = errors.New("not held")
	}
	return err
}

func openBSM(_ context.Context, c Config) (Locker, error) {
	options, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	return &bsmLocker{redislock.New(redis.NewClient(options)), c}, nil
}

type bsmLocker struct {
	locks  *redislock.Client
	config Config
}

func (l *bsmLocker) Lock(ctx context.Context) (Held, error) {
	held, err := l.locks.Obtain(ctx, l.config.Name, l.config.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(again)})
	if err != nil {
		return nil, err
	}
	return bsmHeld{held}, nil
}

type bsmHeld struct{ lock *redislock.Lock }

func (h bsmHeld) Believes() bool                   { return true } // only a call to the server would tell
func (h bsmHeld) Token() uint64                    { return 0 }
func (h bsmHeld) Unlock(ctx context.Context) error { return h.lock.Release(ctx) }

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
	return &rueidisLocker{locks, c}, nil
}

type rueidisLocker struct {
	locks  rueidislock.Locker
	config Config
}

func (l *rueidisLocker) Lock(ctx context.Context) (Held, error) {
	// The context of the lock ends with that of the call, so it must not have its limit.
	type result struct {
		held   context.Context
		unlock context.CancelFunc
		err    error
	}
	waiting, stop := context.WithCancel(context.Background())
	got := make(chan result, 1)
	go func() {
		held, unlock, err := l.locks.WithContext(waiting, l.config.Name)
		got <- result{held, unlock, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			stop()
			return nil, r.err
		}
		return rueidisHeld{r.held, func() { r.unlock(); stop() }}, nil
	case <-ctx.Done():
		stop()
		return nil, ctx.Err()
	}
}

type rueidisHeld struct {
	ctx    context.Context
	unlock func()
}

func (h rueidisHeld) Believes() bool { return h.ctx.Err() == nil }
func (h rueidisHeld) Token() uint64  { return 0 }

func (h rueidisHeld) Unlock(context.Context) error {
	h.unlock()
	return nil
}
