package subjects

import (
	"context"
	"errors"
	"math"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncClient is a client of github.com/go-redsync/redsync with its default
// settings, except that it does not give up after 32 attempts.
type redsyncClient struct {
	servers []redis.UniversalClient
	sync    *redsync.Redsync
}

func newRedsync(_ context.Context, c redis.UniversalClient, _ string) (Client, error) {
	return &redsyncClient{[]redis.UniversalClient{c}, redsync.New(pool.NewPool(c))}, nil
}

// openRedsyncRedlock opens redsync over several independent servers.
func openRedsyncRedlock(dir string) (func(context.Context) (Client, error), error) {
	_, members, err := redisAddresses(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (Client, error) {
		c := new(redsyncClient)
		var pools []redsyncredis.Pool
		for _, addr := range members {
			server := redis.NewClient(&redis.Options{Addr: addr})
			c.servers, pools = append(c.servers, server), append(pools, pool.NewPool(server))
		}
		c.sync = redsync.New(pools...)
		return c, nil
	}, nil
}

func (c *redsyncClient) Worker(_ context.Context, name string) (Worker, error) {
	return &redsyncWorker{c.sync.NewMutex(name, redsync.WithTries(math.MaxInt))}, nil
}

func (c *redsyncClient) Commands() (uint64, bool) { return 0, false } // counted by the server

func (c *redsyncClient) Close() error {
	var errs []error
	for _, server := range c.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

type redsyncWorker struct{ mutex *redsync.Mutex }

func (w *redsyncWorker) Lock(ctx context.Context) error { return w.mutex.LockContext(ctx) }

func (w *redsyncWorker) Unlock(ctx context.Context) error {
	released, err := w.mutex.UnlockContext(ctx)
	if err == nil && !released {
		return driver.ErrNotHeld
	}
	return err
}
