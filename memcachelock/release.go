package memcachelock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
)

// Release implements driver.Store, with one round trip unless the lock was renewed. It waits
// for attempts of the owner that are still under way.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	released, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	return s.release(ctx, &grant)
}

// release is Release without waiting, also for a store that is being closed.
func (s *Store) release(ctx context.Context, grant *driver.Grant) error {
	return s.deleteIf(ctx, grant.Name, handleOf(grant), func(c *conn, it *item) bool { return it.isOf(grant, c.started) })
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	number := tokenstep.Number(token)
	return s.deleteIf(ctx, name, &handle{}, func(c *conn, it *item) bool {
		return number != 0 && tokenstep.Number(it.token(c.started)) == number
	})
}

// deleteIf deletes the lock of name and wakes its waiters, if the item has the number of h, or
// matches returns true for it.
func (s *Store) deleteIf(ctx context.Context, name string, h *handle, matches func(*conn, *item) bool) error {
	calls := 0
	if h.cas.Load() != 0 && s.batcher.crowded() {
		err := s.batcher.do(ctx, nil, &deletion{name, h})
		switch {
		case err == nil:
			s.waiters.wake(name)
			return nil
		case errors.Is(err, errSilent):
			calls++ // it may have been carried out
		case !errors.Is(err, errAlone):
			return s.explain(ctx, err)
		}
	}
	err := s.run(ctx, nil, func(c *conn) error {
		calls++
		return c.deleteIf(name, h.casOver(c), matches)
	})
	if calls > 1 && errors.Is(err, driver.ErrNotHeld) {
		return errMaybeReleased
	}
	if err == nil {
		s.waiters.wake(name)
	}
	return err
}

// deleteIf deletes the item of name if it has the number cas. Otherwise it reads the item, and
// deletes it if matches returns true and it has not changed since. A zero cas is no number.
func (c *conn) deleteIf(name string, cas uint64, matches func(*conn, *item) bool) error {
	for try := range 1 + maxTries {
		if try > 0 || cas != 0 {
			c.writeDelete(name, cas)
			if a, err := c.ask(); err != nil || a.done {
				return err
			}
		}
		it, err := c.get(name)
		switch {
		case err != nil:
			return err
		case it == nil || !matches(c, it):
			return driver.ErrNotHeld
		}
		cas = it.cas
	}
	return errContended
}

// deletion is the first try of conn.deleteIf as an exchange.
type deletion struct {
	name   string
	handle *handle
}

func (d *deletion) write(c *conn) bool {
	cas := d.handle.casOver(c)
	if cas != 0 {
		c.writeDelete(d.name, cas)
	}
	return cas != 0
}

func (d *deletion) read(c *conn) error {
	a, err := c.read()
	if err == nil && !a.done {
		return errAlone
	}
	return err
}
