package drivertest

import (
	"cmp"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// What a member of a quorum needs beyond a store.
var memberClauses = []clause{
	{
		id: "token-floor", needs: []need{needRaiser},
		demand: `Request.Floor: "asks for a token of at least Floor"; later tokens are larger still, and a floor that is lower changes nothing`,
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			for _, ahead := range []uint64{0, 1000, 1} {
				req := p.request(p.name("x"), p.long)
				req.Floor = last + ahead
				grant := a.acquire(req)
				if grant.Token < req.Floor {
					p.failf("asked for a token of at least %d, got %d", req.Floor, grant.Token)
				}
				p.rises(&last, grant.Token)
				req.Floor = last + 500
				a.again(req, grant)
				a.released(grant)
				low := p.request(p.name("x"), p.long)
				low.Floor = 1
				grant = b.acquire(low)
				p.rises(&last, grant.Token)
				b.released(grant)
			}
		},
	},
	{
		id: "raise-token", needs: []need{needRaiser},
		demand: `TokenRaiser.RaiseToken: "sets the first token of a lock that grant.Owner holds to token, and makes every later grant's tokens larger than all of the lock's"; "A token that is already larger stays, unless it is grant.Token"`,
		pair: func(p *probe, a, b *peer) {
			old := a.take(p.name("x"), p.long)
			grant := a.raised(old, old.Token+1000)
			if grant.Name != old.Name || grant.Owner != old.Owner || grant.Token != old.Token+1000 || grant.TTL != old.TTL {
				p.failf("raising %d to %d of a grant for %v made %d for %v", old.Token, old.Token+1000, old.TTL, grant.Token, grant.TTL)
			}
			for range 2 { // a call that was overtaken
				if again := a.raised(old, old.Token+1); again.Token != grant.Token {
					p.failf("token %d was raised to %d and is %d", grant.Token, old.Token+1, again.Token)
				}
			}
			if held := b.refused(grant.Name, "its token was raised"); held.Token != 0 && !p.belongs(held.Token, grant) {
				p.failf("the token was raised to %d, the HeldError says %d", grant.Token, held.Token)
			}
			a.notReleased(old, "its token was raised")
			a.renewed(grant, "its token was raised")
			lowered := a.raised(grant, old.Token+500)
			if lowered.Token != old.Token+500 {
				p.failf("token %d of the grant was lowered to %d and is %d", grant.Token, old.Token+500, lowered.Token)
			}
			a.renewed(lowered, "its token was lowered")
			a.released(lowered)
			last := p.lastOf(grant.Token)
			p.rises(&last, b.take(grant.Name, p.long).Token)
		},
	},
	{
		id: "raise-owner", needs: []need{needRaiser},
		demand: `TokenRaiser.RaiseToken: "[ErrNotHeld] means that the owner does not hold the lock, and that nothing was changed"; it "does not change the TTL"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			b.notRaised(driver.Grant{Name: grant.Name, Owner: driver.NewOwner(), Token: grant.Token, TTL: p.long}, "another owner has it")
			a.released(grant)
			a.notRaised(grant, "it was released")
			b.free(grant.Name, "it was released, and RaiseToken must not bring it back")

			sent := time.Now()
			short := a.take(p.name("short"), p.ttl)
			p.before(sent.Add(short.TTL), func() {
				short.TTL = p.long
				short = a.raised(short, short.Token+1)
			})
			b.soon(p.request(short.Name, p.ttl), "raising its token did not renew it")
			a.notRaised(short, "it expired, and another owner has it")
		},
	},
	{
		id: "identity", needs: []need{needID},
		demand: `Identifier.Identify: "never empty, the same on every connection"`,
		pair: func(p *probe, a, b *peer) {
			first := ""
			for _, c := range []*peer{a, b, a} {
				id, err := c.Store.(driver.Identifier).Identify(p.ctx)
				if first = cmp.Or(first, id); err != nil || id == "" || id != first {
					p.failf("one server is identified as %q and as %q, %v", first, id, err)
				}
			}
		},
	},
}

func (c *peer) raised(grant driver.Grant, token uint64) driver.Grant {
	raised, err := c.Store.(driver.TokenRaiser).RaiseToken(c.p.ctx, grant, token)
	if err != nil {
		c.p.failf("RaiseToken of %q from %d to %d by its holder: %v", grant.Name, grant.Token, token, err)
	}
	return raised
}

func (c *peer) notRaised(grant driver.Grant, because string) {
	if _, err := c.Store.(driver.TokenRaiser).RaiseToken(c.p.ctx, grant, grant.Token+1); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("RaiseToken of %q: want ErrNotHeld (%s), got: %v", grant.Name, because, err)
	}
}
