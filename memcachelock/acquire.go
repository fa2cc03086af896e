package memcachelock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// handle is what a grant carries: how its item can be deleted in one step.
type handle struct {
	token uint64

	mu   sync.Mutex
	cas  uint64
	sent time.Time // before it got that number
}

// is notes the number that the item got after that time.
func (h *handle) is(cas uint64, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cas, h.sent = cas, sent
}

// known returns the number by which the item can be deleted over c, or zero. After a
// restart the numbers begin again, and that one may be another's lock: but a
// connection that is older than the number would not have survived it.
func (h *handle) known(c *conn) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.dialed.Before(h.sent) {
		return h.cas
	}
	return 0
}

var errNoCAS = fmt.Errorf("%w: memcachelock: this memcached was started with -C and cannot compare", driver.ErrUnreachable)

// Acquire makes one attempt, in one round trip unless the lock is held.
//
// The token is the time at which the server started, and the number of the item in
// the order of all that it stored: less than the time of its next start, as
// long as it stores less than a million items a second and its clock is not set
// back.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	err = s.call(ctx, func(c *conn) error {
		if left := c.young(s.delay, req.TTL); left > 0 {
			return &driver.HeldError{Name: req.Name, Remaining: left,
				Holder: driver.Holder{Note: "unknown, because memcached has just started"}}
		}
		for range attempts {
			var err error
			if grant, err = c.acquire(&req); err != nil || grant.Token != 0 {
				return err
			}
		}
		return &driver.HeldError{Name: req.Name} // those who have it come and go
	})
	return grant, err
}

// acquire tries once. The grant is zero if the lock was held, and then was not.
func (c *conn) acquire(req *driver.Request) (driver.Grant, error) {
	key, sent := keyOf(req.Name), c.began
	c.writeAdd(key, markOf(req.Owner, 0, req.Holder), seconds(req.TTL))
	a, err := c.ask()
	switch {
	case err != nil:
		return driver.Grant{}, err
	case !a.done():
		return c.acquireHeld(key, req)
	case a.cas() == 0:
		return driver.Grant{}, errNoCAS
	}
	return granted(req, c.started+a.cas(), a.cas(), sent), nil
}

func granted(req *driver.Request, token, cas uint64, sent time.Time) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL, Handle: &handle{token: token, cas: cas, sent: sent}}
}

// acquireHeld is for a lock that is held: by this owner, or by another one.
func (c *conn) acquireHeld(key string, req *driver.Request) (driver.Grant, error) {
	f, err := c.get(key)
	switch {
	case err != nil || f == nil:
		return driver.Grant{}, err
	case !f.mine(req.Owner):
		return driver.Grant{}, c.held(req.Name, f)
	}
	token, sent := f.token(c.started), c.began
	c.writeSwap(key, markOf(req.Owner, token, req.Holder), seconds(req.TTL), f.cas)
	a, err := c.ask()
	if err != nil || !a.done() {
		return driver.Grant{}, err
	}
	return granted(req, token, a.cas(), sent), nil
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

// Release gives up a lock, in one round trip.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	key := keyOf(grant.Name)
	err := s.call(ctx, func(c *conn) error {
		if h, ok := grant.Handle.(*handle); ok && h.token == grant.Token {
			if cas := h.known(c); cas != 0 {
				done, err := c.delete(key, cas)
				if err != nil || done {
					return err
				}
			}
		}
		return c.releaseFound(key, &grant)
	})
	if err == nil {
		s.watches.wake(grant.Name)
	}
	return err
}

func (c *conn) delete(key string, cas uint64) (done bool, err error) {
	c.writeDelete(key, cas)
	a, err := c.ask()
	return err == nil && a.done(), err
}

// releaseFound looks first whose lock it is.
func (c *conn) releaseFound(key string, grant *driver.Grant) error {
	for range attempts {
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

// attempts is how often a change is repeated that somebody else got in between.
const attempts = 3

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	key := keyOf(name)
	err := s.call(ctx, func(c *conn) error {
		for range attempts {
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
	})
	if err == nil {
		s.watches.wake(name)
	}
	return err
}

// Look implements driver.Looker.
func (s *Store) Look(ctx context.Context, name string) (info driver.Info, held bool, err error) {
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
