package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var passClauses = []clause{
	{
		id: "pass-owner", needs: []need{needPasser},
		demand: `Passer.Pass: "releases grant and acquires req", "in one atomic step"`,
		pair: func(p *probe, a, b *peer) {
			old := a.take(p.name("x"), p.long)
			req := p.request(old.Name, p.long)
			grant := a.passed(old, req)
			if grant.Name != req.Name || grant.Owner != req.Owner {
				p.failf("Pass of %q: the grant is for %q, and not for the owner that asked", req.Name, grant.Name)
			}
			b.refused(grant.Name, "it was passed on")
			a.notRenewed(old, "it was passed on")
			a.notReleased(old, "it was passed on")
			a.renewed(grant, "it got the lock from the one before")
			a.again(req, grant)
			a.released(grant)
			b.free(grant.Name, "it was released")
		},
	},
	{
		id: "pass-token", needs: []need{needPasser, needFencing},
		demand: `Passer.Pass: "Token and TTL of the new grant are as if the lock had been free": the token is larger`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			last := grant.Token
			for range 3 {
				grant = a.passed(grant, p.request(grant.Name, p.long))
				p.rises(&last, grant.Token)
			}
			a.released(grant)
			p.rises(&last, b.take(grant.Name, p.long).Token)
		},
	},
	{
		id: "pass-ttl", needs: []need{needPasser},
		demand: `Passer.Pass: "Token and TTL of the new grant are as if the lock had been free": the TTL starts again`,
		pair: func(p *probe, a, b *peer) {
			p.together(2, func(i int) {
				if i == 0 {
					shorter := a.passed(a.take(p.name("shorter"), p.long), p.request(p.name("shorter"), p.ttl))
					b.soon(p.request(shorter.Name, p.ttl), p.ttl+p.slack, "its TTL is over, whatever that of the one before was")
					return
				}
				longer := a.passed(a.take(p.name("longer"), p.ttl), p.request(p.name("longer"), p.long))
				p.wait(p.ttl + p.slack)
				b.refused(longer.Name, "its TTL is not over, though that of the one before is")
				a.released(longer)
			})
		},
	},
	{
		id: "pass-not-held", needs: []need{needPasser},
		demand: `Passer.Pass: "[ErrNotHeld] means that grant's owner did not hold the lock with grant's token, and that nothing was changed."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			for _, wrong := range []driver.Grant{
				{Name: grant.Name, Owner: grant.Owner, Token: grant.Token + 1, TTL: grant.TTL, Handle: grant.Handle},
				{Name: grant.Name, Owner: driver.NewOwner(), Token: grant.Token, TTL: grant.TTL, Handle: grant.Handle},
			} {
				b.notPassed(wrong, "it is held by another owner or with another token")
			}
			a.renewed(grant, "it was passed on only by those who do not have it")
			a.released(grant)
			a.notPassed(grant, "it was released")
			b.free(grant.Name, "what was released cannot be passed on")
			next := b.take(grant.Name, p.long)
			a.notPassed(grant, "somebody else has it")
			b.renewed(next, "the one before must not touch it")
		},
	},
}

// passes says whether the store, as it was set up, can pass a lock on.
func passes(t *terms) bool {
	passer, ok := t.store.(driver.Passer)
	if !ok {
		return false
	}
	const name = "drivertest/passes" // is free
	grant := driver.Grant{Name: name, Owner: driver.NewOwner(), Token: 1, TTL: time.Minute}
	_, err := passer.Pass(context.Background(), grant, driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
	return !errors.Is(err, driver.ErrUnsupported)
}

// passed demands that the lock of grant goes to the owner of req.
func (c *peer) passed(grant driver.Grant, req driver.Request) driver.Grant {
	c.releaseAtEnd(req)
	next, err := c.Store.(driver.Passer).Pass(c.p.ctx, grant, req)
	if err != nil {
		c.p.failf("Pass of %q, which is held: %v", grant.Name, err)
	}
	return next
}

// notPassed demands that there is nothing to pass on.
func (c *peer) notPassed(grant driver.Grant, because string) {
	req := c.p.request(grant.Name, c.p.long)
	c.releaseAtEnd(req)
	if _, err := c.Store.(driver.Passer).Pass(c.p.ctx, grant, req); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Pass of %q: want ErrNotHeld (%s), got: %v", grant.Name, because, err)
	}
}
