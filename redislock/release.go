package redislock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Release gives up a lock, or a place in the queue, and wakes waiters. Without a
// token it waits for an attempt of the owner that is still on its way to the server.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	released, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	return s.release(ctx, grant)
}

func (s *Store) release(ctx context.Context, grant driver.Grant) error {
	key := s.keyOf(grant.Name)
	reply, err := s.sendRelease(ctx, key, grant)
	if err != nil {
		return err
	}
	s.doubts.clear(grant.Owner)
	if reply != int64(1) {
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	return nil
}

// sendRelease needs no acknowledgement: a release that a failover loses leaves a
// lock that expires.
func (s *Store) sendRelease(ctx context.Context, key string, grant driver.Grant) (any, error) {
	channel := s.channelOf(key)
	if h, ok := grant.Handle.(handle); ok && grant.Token != 0 && !h.fair {
		mark := markPrefix(grant.Owner, grant.Token) + h.holder.text
		var reply any
		var err error
		if s.protocol == Redisson && !s.cluster.Load() {
			reply, err = s.releaseField(ctx, key, mark, channel)
		} else {
			reply, err = s.evalUnacknowledged(ctx, s.scripts.releaseLean, []string{key}, mark, channel)
		}
		if err != nil || reply == int64(1) {
			return reply, err
		} // the owner may have described itself otherwise meanwhile
	}
	prefix := ownerPrefix(grant.Owner)
	if grant.Token != 0 {
		prefix = markPrefix(grant.Owner, grant.Token)
	}
	keys := append([]string{key}, s.queueOf(key)...)
	return s.evalUnacknowledged(ctx, s.scripts.release, keys, prefix, grant.Owner.Hex(), channel)
}

// releaseField does without a script, which would cost the server three times as much:
// HDEL compares and deletes, and the lock ends with its only field. The commands go
// out together. If the connection broke just between them, waiters would come
// when the time is over that the lock had left when they asked.
func (s *Store) releaseField(ctx context.Context, key, mark, channel string) (any, error) {
	deleted := command{redis.NewCmd(ctx, "hdel", key, mark)}
	told := command{redis.NewCmd(ctx, "publish", channel, "0")} // who may not publish can unlock all the same
	if err := s.route.all.do(ctx, deleted, told); err != nil {
		return nil, err
	}
	return deleted.Val(), explain(deleted.Err())
}

// Break releases name if it is held with that token. Another program's holder has
// no token here; it is broken by the number that List shows in its place.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	key := s.keyOf(name)
	keys := append([]string{key}, s.queueOf(key)...)
	reply, err := s.eval(ctx, s.scripts.breakLock, keys, token, s.channelOf(key))
	if err != nil {
		return err
	}
	if reply != int64(1) {
		return fmt.Errorf("%w: %q with token %d", driver.ErrNotHeld, name, token)
	}
	return nil
}
