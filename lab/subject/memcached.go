package subject

import (
	"context"
	"errors"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"
)

var memcachedSubjects = []Subject{
	{"memcached/add-delete", Wrong, "add with an expiry, and delete without looking at the owner", openMemcached},
}

func openMemcached(_ context.Context, c Config) (Locker, error) {
	cache := memcache.New(strings.TrimPrefix(c.URL, "memcached://"))
	item := &memcache.Item{Key: c.Name, Value: []byte("held"), Expiration: int32(max(2, c.TTL.Seconds()))}
	unlock := func(context.Context) error { return cache.Delete(c.Name) }
	return lockFunc(func(ctx context.Context) (Held, error) {
		err := pollLock(ctx, func() (bool, error) {
			err := cache.Add(item)
			if errors.Is(err, memcache.ErrNotStored) {
				return false, nil
			}
			return err == nil, err
		})
		return held{unlock: unlock}, err
	}), nil
}
