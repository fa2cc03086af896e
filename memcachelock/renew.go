package memcachelock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// renewChunk is how many locks are asked for before the answers are read, which must
// fit into what the connection keeps.
const renewChunk = 200

// Renew implements driver.Store, with two round trips for some hundred locks: it looks
// which are still their owners', and stores these again if they have not changed
// since.
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
	all := make([]int, len(grants))
	for i := range all {
		all[i] = i
	}
	var swaps []int // those that are to be stored again
	sent := time.Now()
	err := c.look(grants, all, errs, func(i int, f *found) {
		swaps = append(swaps, i)
		c.writeSwap(keyOf(grants[i].Name), markOf(grants[i].Owner, grants[i].Token, f.holder()), seconds(grants[i].TTL), f.cas)
	})
	if err == nil {
		err = c.flush()
	}
	if err != nil {
		return err
	}
	refused, err := c.readSwaps(grants, swaps, errs, sent)
	if err != nil || len(refused) == 0 {
		return err
	}
	// What the server had no memory to store again, it has dropped.
	return c.look(grants, refused, errs, func(int, *found) {})
}

// look says for which of the grants there is no lock, and does something for the others.
func (c *conn) look(grants []driver.Grant, which []int, errs []error, there func(i int, f *found)) error {
	for _, i := range which {
		c.writeGet(keyOf(grants[i].Name), true)
	}
	if err := c.flush(); err != nil {
		return err
	}
	for _, i := range which {
		a, err := c.read()
		if err != nil {
			return midway(err)
		}
		f := &found{mark: a.value, cas: a.cas()}
		if !a.done() || !f.mine(grants[i].Owner) || f.token(c.started) != grants[i].Token {
			errs[i] = driver.ErrNotHeld
			continue
		}
		there(i, f)
	}
	return nil
}

// readSwaps returns those that the server refused to store.
func (c *conn) readSwaps(grants []driver.Grant, swaps []int, errs []error, sent time.Time) (refused []int, err error) {
	for _, i := range swaps {
		a, err := c.read()
		switch {
		case err != nil && broken(err):
			return nil, err
		case err != nil:
			errs[i] = err
			refused = append(refused, i)
		case a.code == "EX": // somebody changed it just now: who, the next renewal tells
			errs[i] = refusal("the lock was changed meanwhile")
		case !a.done():
			errs[i] = driver.ErrNotHeld
		default:
			if h, ok := grants[i].Handle.(*handle); ok {
				h.is(a.cas(), sent)
			}
		}
	}
	return refused, nil
}
