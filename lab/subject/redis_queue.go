package subject

import (
	"context"
	"crypto/rand"
)

var redisQueues = []Subject{
	{"redis/list-queue", Wrong, "waiters stand in a list, and only the first may take the lock: a dead one stays the first", openQueue},
	{"redis/one-by-one", Wrong, "several names are locked one after the other, in the order that the caller gave",
		mistake{lock: setNX, unlock: deleteIfOwner, renew: expireIfOwner}.openBatch},
}

func openQueue(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	m := mistake{lock: setNX, unlock: deleteIfOwner, renew: expireIfOwner}
	return &queueLocker{mistakeLocker{m, client, c}}, err
}

// queueLocker asks for the lock only when it is the first of a list.
type queueLocker struct{ mistakeLocker }

func (l *queueLocker) Lock(ctx context.Context) (Held, error) {
	queue, me := l.config.Name+":queue", rand.Text()
	if err := l.redis.RPush(ctx, queue, me).Err(); err != nil {
		return nil, err
	}
	err := pollLock(ctx, func() (bool, error) {
		first, err := l.redis.LIndex(ctx, queue, 0).Result()
		return first == me, err
	})
	if err != nil {
		return nil, err
	}
	held, err := l.mistakeLocker.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return held, l.redis.LRem(ctx, queue, 1, me).Err()
}

func (m mistake) openBatch(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	return &batchLocker{mistakeLocker{m, client, c}}, err
}

// batchLocker locks names in the order that it was given.
type batchLocker struct{ mistakeLocker }

// LockAll implements BatchLocker.
func (l *batchLocker) LockAll(ctx context.Context, names []string) (Held, error) {
	var all batchHeld
	for _, name := range names {
		one := l.mistakeLocker
		one.config.Name = name
		held, err := one.Lock(ctx)
		if err != nil {
			return nil, err // and keeps the others, which are renewed
		}
		all = append(all, held)
	}
	return all, nil
}

type batchHeld []Held

func (h batchHeld) Believes() bool { return h[0].Believes() }
func (h batchHeld) Token() uint64  { return 0 }

func (h batchHeld) Unlock(ctx context.Context) error {
	for _, one := range h {
		if err := one.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}
