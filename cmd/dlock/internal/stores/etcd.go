//go:build !noetcd && !onlysqlite

package stores

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
)

var _ = register(func(ctx context.Context, url string) (driver.Store, error) {
	ctx, cancel := UntilFirstAnswer(ctx)
	defer cancel()
	return etcdlock.Open(ctx, url, nil)
}, "etcd")
