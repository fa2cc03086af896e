//go:build !nomemcached && !onlysqlite

package stores

import (
	"context"

	"github.com/dlock-go/dlock/memcachelock"
)

var _ = register(openMemcached, "memcached")

func openMemcached(ctx context.Context, url URL) (*Store, error) {
	store, err := memcachelock.Open(ctx, url.whole(), nil)
	return url.opened(store, err, "memcached", url.place("11211"), "")
}
