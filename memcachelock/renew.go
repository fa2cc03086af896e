package memcachelock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// renewChunk is how many locks are asked for before the answers are read, which must
// fit into what the connection keeps.
const renewChunk = 200

// Renew implements driver.Store, with three round trips for some hundred locks: it asks for
// the time, in case this machine slept, looks which are still their owners', and stores
// these again if they have not changed since.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	failed := false
	for start := 0; start < len(grants); start += renewChunk {
		end := min(start+renewChunk, len(grants))
		err := s.call(ctx, func(c *conn) error { return c.renew(grants[start:end], errs[start:end]) })
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
	var swaps []int // those that are to be stored again
	for i, grant := range grants {
		a, err := c.read()
		if err != nil {
			return midway(err)
		}
		f := a.found()
		if f == nil || !f.mine(grant.Owner) || f.token(c.started) != grant.Token {
			errs[i] = driver.ErrNotHeld
			continue
		}
		swaps = append(swaps, i)
		// By the time of the answer: another renewal that was carried out before it may have
		// begun after this one.
		end := c.clock.notBefore(f.left, time.Now(), grant.TTL)
		c.writeSwap(keyOf(grant.Name), markOf(grant.Owner, grant.Token, f.holder()), end, f.cas)
	}
	if err := c.flush(); err != nil {
		return err
	}
	return c.readSwaps(grants, swaps, errs)
}

func (c *conn) readSwaps(grants []driver.Grant, swaps []int, errs []error) error {
	for _, i := range swaps {
		a, err := c.read()
		switch {
		case broken(err):
			return err
		case err != nil: // the server refused to store it: it is there as it was
			errs[i] = err
		case a.changed: // somebody changed it just now: who, the next renewal tells
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
