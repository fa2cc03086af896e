package memcachelock

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// handle is the Handle of a grant: what identifies its item, and what it takes to delete that in one
// round trip.
type handle struct {
	id    string // see newGrantID
	token uint64
	sent  time.Time     // before the lock was stored
	cas   atomic.Uint64 // the item's number; zero if a renewal changed it
}

// handleOf returns the handle of a grant, an empty one if the token is not that of the handle.
func handleOf(grant *driver.Grant) *handle {
	if h, ok := grant.Handle.(*handle); ok && h.token == grant.Token {
		return h
	}
	return &handle{}
}

// casOver returns the number by which the item can be deleted over c, or zero. After a restart
// the server's numbers begin again, and another lock may have this one. A restart ends all
// connections, so that a connection older than the number proves that there was none.
func (h *handle) casOver(c *conn) uint64 {
	if c.dialed.Before(h.sent) {
		return h.cas.Load()
	}
	return 0
}

// Acquire implements driver.Store, with one round trip.
//
// The tokens are made of the time at which the server started plus the item's number. The sum
// is less than the time of the next start, as long as the server stores less than a million items a second
// and its clock is not set back.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	if err := s.usable(ctx); err != nil {
		return grant, err
	}
	leave := func() func(bool) { return s.attempts.Leave(req.Name, req.Owner) }
	tries := 0
	if s.batcher.crowded() {
		a := &acquisition{req: &req, restartDelay: s.restartDelay}
		switch err := s.batcher.do(ctx, leave, a); {
		case err == nil:
			return a.grant, nil
		case errors.Is(err, errSilent):
			tries++ // it may still be carried out
		case !errors.Is(err, errAlone):
			return grant, s.explain(ctx, err)
		}
	}
	err = s.run(ctx, leave, func(c *conn) (err error) {
		tries++
		if wait := c.restartWait(s.restartDelay, req.TTL); wait > 0 {
			if err := c.refuseAfterRestart(&req, wait); err != nil {
				return err
			}
		}
		grant, err = c.acquire(&req)
		return err
	})
	if tries > 1 && errors.Is(err, driver.ErrHeld) {
		return grant, errMaybeGranted
	}
	return grant, err
}

// refuseAfterRestart refuses a lock that a holder from before the restart may still trust. It
// reads the item first: what the connection remembers does not prove that the server answers. It
// returns nil if the lock is the owner's: over another connection it was not too early.
func (c *conn) refuseAfterRestart(req *driver.Request, wait time.Duration) error {
	it, err := c.get(req.Name)
	switch {
	case err != nil:
		return err
	case it != nil && it.ownedBy(req.Owner):
		return nil
	case it != nil:
		return c.held(req.Name, it)
	}
	return &driver.HeldError{Name: req.Name, Remaining: wait,
		Holder: driver.Holder{Note: "unknown, because memcached has just started"}}
}

// maxTries is how often a change is repeated that lost a race for the item.
const maxTries = 3

// acquire stores the lock and reads the item in the same round trip. The lock is granted only
// if the item read is the one stored. acquire stores the item again if the owner already holds
// the lock, and if the item would expire too soon.
func (c *conn) acquire(req *driver.Request) (driver.Grant, error) {
	now := c.began
	var own item      // the owner's, if it is there
	var failure error // of the last try
	for range maxTries {
		id := cmp.Or(own.grantID(), newGrantID(req.Owner))
		value, expiry := holderValue(id, own.token(c.started), req.Holder), c.clock.expiryKeeping(own.left, now, req.TTL)
		stored, it, err := c.put(req.Name, value, expiry, own.cas)
		if stored && it != nil && it.value == value {
			c.clock.observe(expiry-it.left, now)
		}
		switch {
		case it != nil && it.value != value && !it.ownedBy(req.Owner): // also if the server had no memory to store
			return driver.Grant{}, c.held(req.Name, it)
		case err != nil:
			return driver.Grant{}, err
		case it == nil && stored: // evicted, or expired at once because the clock is wrong
			own, failure = item{}, failed("the stored lock is gone at once")
			if _, _, err := c.askTime(); err != nil {
				return driver.Grant{}, err
			}
		case it == nil: // released between storing and reading
			own, failure = item{}, &driver.HeldError{Name: req.Name}
		case it.cas == 0:
			return driver.Grant{}, errNoCAS
		case stored && it.value == value && expiry >= c.clock.expiry(now, req.TTL):
			return c.granted(req, it, now), nil
		default:
			own, failure = *it, errContended
		}
		now = time.Now()
	}
	return driver.Grant{}, failure
}

// granted returns the grant for an item that was stored after that moment.
func (c *conn) granted(req *driver.Request, it *item, moment time.Time) driver.Grant {
	h := &handle{id: strings.Clone(it.grantID()), token: it.token(c.started), sent: moment}
	h.cas.Store(it.cas)
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: h.token, TTL: req.TTL, Handle: h}
}

// held returns the error for a lock that another owner holds. It does not show what another
// program stored.
func (c *conn) held(name string, it *item) *driver.HeldError {
	held := &driver.HeldError{Name: name, Token: it.token(c.started)}
	if held.Token != 0 {
		held.Holder = it.holder()
	}
	if it.left > 0 {
		held.Remaining = time.Duration(it.left) * time.Second
	}
	return held
}

// acquisition is the first try of conn.acquire as an exchange.
type acquisition struct {
	req          *driver.Request
	restartDelay time.Duration
	value        string
	expiry       int64
	grant        driver.Grant
}

func (a *acquisition) write(c *conn) bool {
	a.value, a.expiry = holderValue(newGrantID(a.req.Owner), 0, a.req.Holder), c.clock.expiry(c.began, a.req.TTL)
	if len(a.value) > maxBatchValue || c.restartWait(a.restartDelay, a.req.TTL) > 0 {
		return false
	}
	c.writePut(a.req.Name, a.value, a.expiry, 0)
	return true
}

func (a *acquisition) read(c *conn) error {
	stored, it, err := c.readPut()
	switch {
	case it != nil && it.value != a.value && !it.ownedBy(a.req.Owner):
		return c.held(a.req.Name, it)
	case broken(err):
		return err
	case err != nil || !stored || it == nil || it.value != a.value || it.cas == 0:
		return errAlone
	}
	c.clock.observe(a.expiry-it.left, c.began)
	if a.expiry < c.clock.expiry(c.began, a.req.TTL) { // the item would expire too soon
		return errAlone
	}
	a.grant = c.granted(a.req, it, c.began)
	return nil
}
