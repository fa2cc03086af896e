//go:build !noredis && !onlysqlite

package stores

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// quietRedis ends the log of the driver, which repeats its errors.
var quietRedis = sync.OnceFunc(func() { redis.SetLogger(&logging.VoidLogger{}) })

var (
	_ = register(openRedis, "redis", "rediss", "redis+sentinel", "redis+cluster")
	_ = register(openRedlock, "redlock")
)

// openRedis opens one server, Sentinel or Cluster.
func openRedis(ctx context.Context, u URL) (*Store, error) {
	quietRedis()
	store, err := redislock.Open(ctx, u.whole(), nil)
	return u.openedRedis(store, err, "redis")
}

// openedRedis describes a store of Redis by its database and its protocol, without defaults.
func (u URL) openedRedis(store driver.Store, err error, family string) (*Store, error) {
	sentinel, port := u.Scheme == "redis+sentinel", "6379"
	if sentinel {
		port = "26379"
	}
	at := u.place(port)
	db, path := at.Take("db"), at.Path
	if !sentinel {
		db = cmp.Or(db, at.Path)
	}
	if number, err := strconv.Atoi(db); err == nil {
		db = strings.TrimPrefix(strconv.Itoa(number), "0") // 00 is 0
	}
	var parameters []string
	switch {
	case !sentinel:
		path = db
	case db != "":
		parameters = append(parameters, "db="+db)
	}
	if family == "redis" && at.Take("protocol") == "plain" {
		parameters = append(parameters, "protocol=plain")
	}
	return u.opened(store, err, family, at, path, parameters...)
}

// openRedlock opens independent servers, with the plain protocol of Redlock.
func openRedlock(ctx context.Context, u URL) (*Store, error) {
	quietRedis()
	store, err := redlock.Open(ctx, u.whole(), nil)
	return u.openedRedis(store, err, "redlock")
}
