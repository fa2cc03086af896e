package subjects

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/dlock-go/dlock"
	"github.com/redis/go-redis/v9"
)

// pollEvery is the polling interval of redislock's own examples. The library
// leaves it to its users.
const pollEvery = 100 * time.Millisecond

// redislockClient is a client of github.com/bsm/redislock.
type redislockClient struct {
	redisClient
	locks *redislock.Client
}

func newRedislock(_ context.Context, c redis.UniversalClient, _ string) (Client, error) {
	return &redislockClient{redisClient{c}, redislock.New(c)}, nil
}

func (c *redislockClient) Worker(_ context.Context, name string) (Worker, error) {
	return &redislockWorker{locks: c.locks, name: name}, nil
}

type redislockWorker struct {
	locks *redislock.Client
	name  string
	held  *redislock.Lock
}

func (w *redislockWorker) Lock(ctx context.Context) (err error) {
	w.held, err = w.locks.Obtain(ctx, w.name, dlock.DefaultTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEvery)})
	return err
}

func (w *redislockWorker) Unlock(ctx context.Context) error { return w.held.Release(ctx) }
