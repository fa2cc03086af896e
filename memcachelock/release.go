package memcachelock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// Release implements driver.Store, with one round trip unless the lock was renewed. It waits
// for acquisitions of the owner that are still under way.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	released, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	return s.unlessClosed(s.release(ctx, &grant))
}

func (s *Store) release(ctx context.Context, grant *driver.Grant) error {
	key := keyOf(grant.Name)
	return s.deleteAndWake(ctx, grant.Name, func(c *conn) error {
		if h, ok := grant.Handle.(*handle); ok && h.token == grant.Token {
			if cas := h.casOver(c); cas != 0 {
				done, err := c.delete(key, cas)
				if err != nil || done {
					return err
				}
			}
		}
		return c.deleteIf(key, func(it *item) bool {
			return it.ownedBy(grant.Owner) && (grant.Token == 0 || grant.Token == it.token(c.started))
		})
	})
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.unlessClosed(s.deleteAndWake(ctx, name, func(c *conn) error {
		return c.deleteIf(keyOf(name), func(it *item) bool { return token != 0 && it.token(c.started) == token })
	}))
}

// deleteAndWake runs fn, which deletes the lock of name, and wakes its waiters.
func (s *Store) deleteAndWake(ctx context.Context, name string, fn func(*conn) error) error {
	calls := 0
	err := s.run(ctx, nil, func(c *conn) error {
		calls++
		return fn(c)
	})
	if calls > 1 && errors.Is(err, driver.ErrNotHeld) {
		return errMaybeReleased
	}
	if err == nil {
		s.waiters.wake(name)
	}
	return err
}

// deleteIf reads the item under key, and deletes it if matches returns true and the item has not
// changed since.
func (c *conn) deleteIf(key string, matches func(*item) bool) error {
	for range maxTries {
		it, err := c.get(key)
		switch {
		case err != nil:
			return err
		case it == nil || !matches(it):
			return driver.ErrNotHeld
		}
		if done, err := c.delete(key, it.cas); err != nil || done {
			return err
		}
	}
	return errContended
}
