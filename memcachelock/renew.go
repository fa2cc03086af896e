package memcachelock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// maxPipelined is how many commands are sent before the answers are read. The commands that ask for
// items must fit into the buffers of the connection.
const maxPipelined = 200

// Renew implements driver.Store, with three round trips for maxPipelined locks: it asks for the
// time, in case this machine was suspended, reads the items, and stores those that still belong
// to their owners, if they have not changed since.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, 0, len(grants))
	for chunk := range slices.Chunk(grants, maxPipelined) {
		results := make([]error, len(chunk))
		if err := s.call(ctx, func(c *conn) error { return c.renew(chunk, results) }); err != nil {
			results = slices.Repeat([]error{err}, len(chunk))
		}
		errs = append(errs, results...)
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
		c.writeGet(grant.Name, wholeItem)
	}
	var stored []int                    // indices of the grants whose items are stored again
	items := make([]*item, len(grants)) // all are read before one is stored: until then the server may not read
	err := c.readAll(len(grants), func(i int, a answer, err error) {
		grant, it := &grants[i], a.found()
		if err == nil && (it == nil || !it.isOf(grant, c.started)) {
			err = driver.ErrNotHeld
		}
		if errs[i] = err; err == nil {
			stored = append(stored, i)
			items[i] = it
		}
	})
	if err != nil {
		return err
	}
	for _, i := range stored {
		grant, it := &grants[i], items[i]
		// The TTL counts from now, not from the request: a renewal that the server carried out before
		// this one may have been sent after it.
		expiry := c.clock.expiryKeeping(it.left, time.Now(), grant.TTL)
		token, _, _ := it.written()
		token = cmp.Or(token, grant.Token, it.token(c.started))
		c.writeStore(grant.Name, holderValue(it.grantID(), token, it.holder()), expiry, it.cas)
	}
	return c.readAll(len(stored), func(n int, a answer, err error) {
		i := stored[n]
		switch h, ok := grants[i].Handle.(*handle); {
		case err != nil: // the server refused to store: the item is as it was
			errs[i] = err
		case a.changed: // the next renewal finds out by whom
			errs[i] = failed("the lock was changed meanwhile")
		case !a.done:
			errs[i] = driver.ErrNotHeld
		case ok:
			h.cas.Store(0)
		}
	})
}
