//go:build !nozookeeper && !onlysqlite

package stores

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zklock"
)

var _ = register(func(ctx context.Context, url string) (driver.Store, error) {
	return zklock.Open(ctx, url, nil)
}, "zookeeper")
