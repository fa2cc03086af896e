package memcachelock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// maxPipelined is how many commands are sent before the answers are read. The answers must fit
// into the buffers of the connection.
const maxPipelined = 200

// Renew implements driver.Store, with three round trips for maxPipelined locks: it asks for the
// time, in case this machine was suspended, reads the items, and stores those that still belong
// to their owners, if they have not changed since.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	failed := false
	for start := 0; start < len(grants); start += maxPipelined {
		end := min(start+maxPipelined, len(grants))
		err := s.call(ctx, nil, func(c *conn) error { return c.renew(grants[start:end], errs[start:end]) })
		for i := start; i < end; i++ {
			if err != nil {
				errs[i] = err
			}
			failed = failed || errs[i] != nil
		}
	}
	if !failed {
		return nil
	}
	return errs
}

func (c *conn) renew(grants []driver.Grant, errs []error) error {
	clear(errs) // of a first call, on a connection that was silent
	if _, _, err := c.askTime(); err != nil {
		return err
	}
	for _, grant := range grants {
		c.writeGet(keyOf(grant.Name), true)
	}
	if err := c.flush(); err != nil {
		return err
	}
	var stored []int // indices of the grants whose items are stored again
	for i, grant := range grants {
		a, err := c.read()
		if broken(err) {
			return err
		}
		it := a.found()
		if err == nil && (it == nil || !it.ownedBy(grant.Owner) || it.token(c.started) != grant.Token) {
			err = driver.ErrNotHeld
		}
		if errs[i] = err; err != nil {
			continue
		}
		stored = append(stored, i)
		// The TTL counts from the answer: a renewal that was carried out before it may have
		// begun after this one.
		expiry := c.clock.expiryKeeping(it.left, time.Now(), grant.TTL)
		c.writeStore(keyOf(grant.Name), holderValue(grant.Owner, grant.Token, it.holder()), expiry, it.cas)
	}
	if err := c.flush(); err != nil {
		return err
	}
	for _, i := range stored {
		a, err := c.read()
		switch {
		case broken(err):
			return err
		case err != nil: // the server refused to store: the item is as it was
			errs[i] = err
		case a.changed: // the next renewal finds out by whom
			errs[i] = refusal("the lock was changed meanwhile")
		case !a.done:
			errs[i] = driver.ErrNotHeld
		default:
			if h, ok := grants[i].Handle.(*handle); ok {
				h.cas.Store(0)
			}
		}
	}
	return nil
}
