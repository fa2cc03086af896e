//go:build !nomemcached && !onlysqlite

package stores

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
)

var _ = register(func(ctx context.Context, url string) (driver.Store, error) {
	return memcachelock.Open(ctx, url, nil)
}, "memcached")
