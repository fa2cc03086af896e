package redislock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store. Without a token it waits for an attempt of the owner that is
// still on its way to the server.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.begin(ctx); err != nil {
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
	s.writerPlaces.remove(grant.Owner) // also if the release fails: then the place expires
	key, prefix := s.keyOf(grant.Name), s.prefixOf(grant)
	var reply any
	var err error
	if h, ok := grant.Handle.(handle); ok && grant.Token != 0 && h.exact && s.protocol == Redisson {
		reply, err = s.route.eval(ctx, s.scripts.releaseExact, []string{key}, prefix+h.holder, s.channelOf(key), javaRWChannelOf(key))
	}
	if err == nil && reply != int64(1) { // a later attempt may have described its holder differently, or the lock is shared
		reply, err = s.evalForOwner(ctx, s.scripts.release, key, prefix, grant.Owner)
	}
	if err == nil {
		s.unconfirmed.remove(grant.Owner)
	}
	return notHeldUnlessOne(reply, err, grant.Name)
}

// evalForOwner runs a script that changes what the owner has under a prefix of the holder value.
func (s *Store) evalForOwner(ctx context.Context, sc *script, key, prefix string, owner driver.Owner) (any, error) {
	args := []any{prefix, s.channelOf(key)}
	if s.protocol == Redisson {
		args = append(args, javaRWChannelOf(key), owner.Hex())
	}
	return s.route.eval(ctx, sc, append([]string{key}, s.queueOf(key)...), args...)
}

// notHeldUnlessOne returns the error of a script that replies 1 if the owner held the lock.
func notHeldUnlessOne(reply any, err error, name string) error {
	if err == nil && reply != int64(1) {
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	}
	return err
}

// undo releases whatever the owner has under the name.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	return s.release(ctx, driver.Grant{Name: name, Owner: owner})
}

// Downgrade implements driver.Downgrader. It does not wait for replicas: after a failover that
// loses it, the owner still has the exclusive lock, and no share of another owner can have been
// replicated.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if s.protocol == Plain {
		return fmt.Errorf("%w: a downgrade in the plain protocol", driver.ErrUnsupported)
	}
	reply, err := s.evalForOwner(ctx, s.scripts.downgrade, s.keyOf(grant.Name), grantPrefix(grant.Owner, s.lastToken(grant)), grant.Owner)
	return notHeldUnlessOne(reply, err, grant.Name)
}

// Break implements driver.Breaker. Another program's holder has no token here: Break takes the
// number that List shows in its place. As a release, it does not wait for replicas.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	key := s.keyOf(name)
	keys := append([]string{key}, s.queueOf(key)...)
	reply, err := s.route.eval(ctx, s.scripts.breakLock, keys, token, s.channelOf(key), javaRWChannelOf(key))
	if err == nil && reply != int64(1) {
		return fmt.Errorf("%w: %q with token %d", driver.ErrNotHeld, name, token)
	}
	return err
}
