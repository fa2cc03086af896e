package redislock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Release implements driver.Store. Without a token it waits for an attempt of the owner that is
// still on its way to the server.
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

// release does not wait for replicas: a release that a failover loses leaves a lock that expires.
func (s *Store) release(ctx context.Context, grant driver.Grant) error {
	key := s.keyOf(grant.Name)
	channel, prefix := s.channelOf(key), grantPrefix(grant.Owner, lastToken(grant))
	if grant.Token == 0 {
		prefix = ownerPrefix(grant.Owner)
	}
	var reply any
	var err error
	if h, ok := grant.Handle.(handle); ok && grant.Token != 0 && !h.fair {
		if s.protocol == Redisson && !s.clustered.Load() {
			reply, err = s.releaseField(ctx, key, prefix+h.holder, channel)
		} else {
			reply, err = s.route.eval(ctx, s.scripts.releaseExact, []string{key}, prefix+h.holder, channel)
		}
	}
	if err == nil && reply != int64(1) { // a later attempt of the owner may have described its holder differently
		keys := append([]string{key}, s.queueOf(key)...)
		reply, err = s.route.eval(ctx, s.scripts.release, keys, prefix, grant.Owner.Hex(), channel)
	}
	if err != nil {
		return err
	}
	s.unconfirmed.remove(grant.Owner)
	if reply != int64(1) {
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	return nil
}

// undo releases whatever the owner has under the name.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	return s.release(ctx, driver.Grant{Name: name, Owner: owner})
}

// releaseField uses no script, which would cost the server three times as much: HDEL compares
// and deletes, and the lock ends with its only field. Both commands go out together. If the
// connection breaks between them, waiters try again when the TTL that they saw has passed.
func (s *Store) releaseField(ctx context.Context, key, value, channel string) (any, error) {
	deleted := command{redis.NewCmd(ctx, "hdel", key, value)}
	published := command{redis.NewCmd(ctx, "publish", channel, "0")} // a user without the right to publish can release
	if err := s.route.all.do(ctx, deleted, published); err != nil {
		return nil, err
	}
	return deleted.Val(), explain(deleted.Err())
}

// Break implements driver.Breaker. Another program's holder has no token here: Break takes the
// number that List shows in its place.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	key := s.keyOf(name)
	keys := append([]string{key}, s.queueOf(key)...)
	reply, err := s.acked.eval(ctx, s.scripts.breakLock, keys, token, s.channelOf(key))
	if err != nil {
		return err
	}
	if reply != int64(1) {
		return fmt.Errorf("%w: %q with token %d", driver.ErrNotHeld, name, token)
	}
	return nil
}
