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
	return &memcachedLocker{memcache.New(strings.TrimPrefix(c.URL, "memcached://")), c}, nil
}

type memcachedLocker struct {
	cache  *memcache.Client
	config Config
}

func (l *memcachedLocker) Lock(ctx context.Context) (Held, error) {
	err := pollLock(ctx, func() (bool, error) {
		err := l.cache.Add(&memcache.Item{Key: l.config.Name, Value: []byte("held"), Expiration: int32(max(2, l.config.TTL.Seconds()))})
		if errors.Is(err, memcache.ErrNotStored) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return memcachedHeld{l}, nil
}

type memcachedHeld struct{ *memcachedLocker }

func (h memcachedHeld) Believes() bool               { return true }
func (h memcachedHeld) Token() uint64                { return 0 }
func (h memcachedHeld) Unlock(context.Context) error { return h.cache.Delete(h.config.Name) }
