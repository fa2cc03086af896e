package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// peer is a connection to the store, as another machine would have it.
type peer struct {
	driver.Store
	p *probe
}

// open connects another machine.
func (p *probe) open() *peer {
	store, err := p.Open(p.ctx)
	if err != nil {
		p.failf("Open: %v", err)
	}
	return p.adopt(store)
}

func (p *probe) adopt(store driver.Store) *peer {
	p.atEnd(func(context.Context) { _ = store.Close() })
	return &peer{store, p}
}

// open2 connects two machines, for a holder and a contender.
func (p *probe) open2() (a, b *peer) { return p.open(), p.open() }

// request asks for name as an owner that is new.
func (p *probe) request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl, Holder: p.holder("")}
}

// releaseAtEnd makes sure that nothing of req is left when the clause ends.
func (c *peer) releaseAtEnd(req driver.Request) {
	c.p.atEnd(func(ctx context.Context) {
		_ = c.Release(ctx, driver.Grant{Name: req.Name, Owner: req.Owner})
	})
}

// try makes one attempt. It returns a grant, or the refusal. Any other error ends the
// clause.
func (c *peer) try(req driver.Request) (driver.Grant, *driver.HeldError) {
	grant, err := c.Acquire(c.p.ctx, req)
	if err == nil {
		c.releaseAtEnd(req)
		return grant, nil
	}
	return driver.Grant{}, c.held(err)
}

// held demands that err is a refusal.
func (c *peer) held(err error) *driver.HeldError {
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		c.p.failf("Acquire: want a grant or a *HeldError, got: %v", err)
	}
	return held
}

// acquire demands the lock at once.
func (c *peer) acquire(req driver.Request) driver.Grant {
	grant, held := c.try(req)
	if held != nil {
		c.p.failf("Acquire of %q, which is free: %v, token %d, remaining %v", req.Name, held, held.Token, held.Remaining)
	}
	return grant
}

// take is acquire for a new owner.
func (c *peer) take(name string, ttl time.Duration) driver.Grant {
	return c.acquire(c.p.request(name, ttl))
}

// refused demands that the lock is held; because says by which owner.
func (c *peer) refused(name, because string) *driver.HeldError {
	grant, held := c.try(c.p.request(name, c.p.ttl))
	if held == nil {
		c.p.failf("%q was granted (token %d) to a second owner: %s", name, grant.Token, because)
	}
	return held
}

// free demands that name can be acquired at once, and releases it.
func (c *peer) free(name, because string) {
	grant, held := c.try(c.p.request(name, c.p.long))
	if held != nil {
		c.p.failf("%q is not free (%v, token %d, remaining %v): %s", name, held, held.Token, held.Remaining, because)
	}
	c.released(grant)
}

// soon demands the lock within limit and returns when it came.
func (c *peer) soon(req driver.Request, limit time.Duration, because string) (driver.Grant, time.Time) {
	var grant driver.Grant
	var held *driver.HeldError
	var at time.Time
	if !c.p.eventually(limit, func() bool {
		grant, held = c.try(req)
		at = time.Now()
		return held == nil
	}) {
		c.p.failf("%q is still held after %v (%v, token %d, remaining %v): %s",
			req.Name, limit, held, held.Token, held.Remaining, because)
	}
	return grant, at
}

// released demands that Release succeeds.
func (c *peer) released(grant driver.Grant) {
	if err := c.Release(c.p.ctx, grant); err != nil {
		c.p.failf("Release of %q by its holder: %v", grant.Name, err)
	}
}

// notReleased demands that Release returns ErrNotHeld.
func (c *peer) notReleased(grant driver.Grant, because string) {
	if err := c.Release(c.p.ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Release of %q: want ErrNotHeld (%s), got: %v", grant.Name, because, err)
	}
}

// renewed demands that Renew succeeds.
func (c *peer) renewed(grant driver.Grant, because string) {
	if errs := c.Renew(c.p.ctx, []driver.Grant{grant}); errs != nil {
		c.p.failf("Renew of %q: want nil (%s), got: %v", grant.Name, because, errs)
	}
}

// notRenewed demands that Renew returns ErrNotHeld.
func (c *peer) notRenewed(grant driver.Grant, because string) {
	errs := c.Renew(c.p.ctx, []driver.Grant{grant})
	if len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
		c.p.failf("Renew of %q: want one ErrNotHeld (%s), got: %v", grant.Name, because, errs)
	}
}

// expired waits until a grant that has just arrived has expired, for all contenders too. Its
// TTL began at some time before its arrival.
func (p *probe) expired(grant driver.Grant) {
	p.waitUntil(time.Now().Add(grant.TTL + p.traits.Granularity + p.slack/4))
}
