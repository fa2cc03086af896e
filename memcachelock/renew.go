package memcachelock

import (
	"context"
	"errors"
	"slices"
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
	rest := errs
	for chunk := range slices.Chunk(grants, maxPipelined) {
		results := rest[:len(chunk)]
		rest = rest[len(chunk):]
		if err := s.call(ctx, nil, func(c *conn) error { return c.renew(chunk, results) }); err != nil {
			for i := range results {
				results[i] = err
			}
		}
	}
	if errors.Join(errs...) == nil {
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
