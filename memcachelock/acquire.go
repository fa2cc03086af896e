package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// handle is what a grant carries: how its item can be deleted in one step.
type handle struct {
	token uint64
	sent  time.Time     // before the lock was stored
	cas   atomic.Uint64 // the number that it got; zero when it has another one
}

// known returns the number by which the item can be deleted over c, or zero. After a
// restart the numbers begin again, and that one may be another's lock: but a
// connection that is older than the number would not have survived it.
func (h *handle) known(c *conn) uint64 {
	if c.dialed.Before(h.sent) {
		return h.cas.Load()
	}
	return 0
}

var errNoCAS = fmt.Errorf("%w: memcached: this memcached was started with -C and cannot compare", driver.ErrUnreachable)

// Acquire makes one attempt, in one round trip.
//
// The token is the time at which the server started, and the number of the item in
// the order of all that it stored: less than the time of its next start, as
// long as it stores less than a million items a second and its clock is not set
// back.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	leave := func() func(bool) { return s.attempts.Leave(req.Name, req.Owner) }
	err = s.run(ctx, leave, func(c *conn) (err error) {
		if left := c.young(s.delay, req.TTL); left > 0 {
			return c.tooYoung(&req, left)
		}
		grant, err = c.acquire(&req)
		return err
	})
	return grant, s.unlessClosed(err)
}

// tooYoung refuses a lock that another may believe to have. It asks the server all the same:
// what the connection remembers does not show that the server is there.
func (c *conn) tooYoung(req *driver.Request, left time.Duration) error {
	f, err := c.get(keyOf(req.Name))
	switch {
	case err != nil:
		return err
	case f != nil:
		return c.held(req.Name, f)
	}
	return &driver.HeldError{Name: req.Name, Remaining: left,
		Holder: driver.Holder{Note: "unknown, because memcached has just started"}}
}

// acquire stores the lock, and looks what is there then: only if that is what was
// stored, it is granted, with the number that it has. A lock that the owner has already is
// stored again, and so is one that would end too soon.
func (c *conn) acquire(req *driver.Request) (driver.Grant, error) {
	key, now := keyOf(req.Name), c.began
	var token, cas uint64 // of the lock, if it is there and the owner's
	var left int64        // seconds until it ends
	var failure error     // if this was the last attempt
	for range tries {
		mark, end := markOf(req.Owner, token, req.Holder), c.clock.notBefore(left, now, req.TTL)
		stored, f, err := c.put(key, mark, end, cas)
		if stored && f != nil && f.mark == mark {
			c.clock.hear(end-f.left, now)
		}
		switch {
		case f != nil && !f.mine(req.Owner): // it is held, also if there was no memory to try
			return driver.Grant{}, c.held(req.Name, f)
		case err != nil:
			return driver.Grant{}, err
		case f == nil && stored: // it was forgotten just now, or over before it was there
			token, cas, left, failure = 0, 0, 0, refusal("what was stored is gone at once")
			if _, _, err := c.askTime(); err != nil {
				return driver.Grant{}, err
			}
		case f == nil: // whoever had it left
			token, cas, left, failure = 0, 0, 0, &driver.HeldError{Name: req.Name}
		case f.cas == 0:
			return driver.Grant{}, errNoCAS
		case stored && f.mark == mark && end >= c.clock.end(now, req.TTL):
			return granted(req, f.token(c.started), f.cas, now), nil
		default:
			token, cas, left, failure = f.token(c.started), f.cas, f.left, refusal("the lock is changed again and again")
		}
		now = time.Now()
	}
	return driver.Grant{}, failure
}

func granted(req *driver.Request, token, cas uint64, sent time.Time) driver.Grant {
	h := &handle{token: token, sent: sent}
	h.cas.Store(cas)
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL, Handle: h}
}

// held describes who has the lock. What another program wrote is its secret.
func (c *conn) held(name string, f *found) *driver.HeldError {
	held := &driver.HeldError{Name: name, Token: f.token(c.started)}
	if held.Token != 0 {
		held.Holder = f.holder()
	}
	if f.left > 0 {
		held.Remaining = time.Duration(f.left) * time.Second
	}
	return held
}

// Release gives up a lock: in one round trip, unless it was renewed. It waits for
// acquisitions of the owner whose answer is still under way.
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
	return s.free(ctx, grant.Name, func(c *conn) error {
		if h, ok := grant.Handle.(*handle); ok && h.token == grant.Token {
			if cas := h.known(c); cas != 0 {
				done, err := c.delete(key, cas)
				if err != nil || done {
					return err
				}
			}
		}
		return c.releaseFound(key, grant)
	})
}

// errFreed: what the first of two calls would have deleted is not there. The first may have
// deleted it, and its answer got lost.
var errFreed = fmt.Errorf("%w: memcached: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

// free runs fn, which deletes the lock of name, and wakes its waiters.
func (s *Store) free(ctx context.Context, name string, fn func(*conn) error) error {
	calls := 0
	err := s.run(ctx, nil, func(c *conn) error {
		calls++
		return fn(c)
	})
	if calls > 1 && errors.Is(err, driver.ErrNotHeld) {
		err = errFreed
	}
	if err == nil {
		s.watches.wake(name)
	}
	return err
}

func (c *conn) delete(key string, cas uint64) (done bool, err error) {
	c.writeDelete(key, cas)
	a, err := c.ask()
	return a.done, err
}

// releaseFound looks first whose lock it is.
func (c *conn) releaseFound(key string, grant *driver.Grant) error {
	for range tries {
		f, err := c.get(key)
		switch {
		case err != nil:
			return err
		case f == nil || !f.mine(grant.Owner) || grant.Token != 0 && grant.Token != f.token(c.started):
			return driver.ErrNotHeld
		}
		if done, err := c.delete(key, f.cas); err != nil || done {
			return err
		} // it was renewed meanwhile
	}
	return refusal("the lock is changed again and again")
}

// tries is how often a change is repeated that lost a race for the item.
const tries = 3

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	key := keyOf(name)
	return s.unlessClosed(s.free(ctx, name, func(c *conn) error {
		for range tries {
			f, err := c.get(key)
			switch {
			case err != nil:
				return err
			case f == nil || token == 0 || f.token(c.started) != token:
				return driver.ErrNotHeld
			}
			if done, err := c.delete(key, f.cas); err != nil || done {
				return err
			}
		}
		return refusal("the lock is changed again and again")
	}))
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (info driver.Info, held bool, err error) {
	err = s.call(ctx, func(c *conn) error {
		f, err := c.get(keyOf(name))
		if err != nil || f == nil {
			return err
		}
		h := c.held(name, f)
		info, held = driver.Info{Name: name, Token: h.Token, Holder: h.Holder, Remaining: h.Remaining}, true
		return nil
	})
	return info, held, err
}
