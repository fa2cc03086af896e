//go:build !noredis && !onlysqlite

package stores

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// quietRedis ends the log of the driver, which repeats its errors.
var quietRedis = sync.OnceFunc(func() { redis.SetLogger(&logging.VoidLogger{}) })

var _ = register(func(ctx context.Context, url string) (driver.Store, error) {
	quietRedis()
	return redislock.Open(ctx, url, nil)
}, "redis", "rediss", "redis+sentinel", "redis+cluster")

var _ = register(func(ctx context.Context, url string) (driver.Store, error) {
	quietRedis()
	return redlock.Open(ctx, url, nil)
}, "redlock")
