package drivertest

import (
	"errors"
	"math"

	"github.com/dlock-go/dlock/driver"
)

var breakClauses = []clause{
	{
		id: "break-token", needs: []need{needBreaker},
		demand: `Breaker.Break: "ends the grant of name that has this token, in one atomic step"; "Without such a grant Break returns [ErrNotHeld]."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			for _, token := range []uint64{p.lastOf(grant.Token) + 1, grant.Token - 1, 0, 1 << 62, math.MaxUint64} {
				b.notBroken(grant.Name, token, "it is held with another token")
			}
			a.renewed(grant, "it was broken only with tokens that it does not have")
			a.released(grant)
			b.notBroken(grant.Name, grant.Token, "it was released")
			b.notBroken(p.name("never held"), 1, "it was never held")

			next := a.take(grant.Name, p.long)
			b.notBroken(grant.Name, grant.Token, "another owner has it now")
			a.renewed(next, "it was broken only with the token of the holder before")
		},
	},
	{
		id: "break-step", needs: []need{needBreaker},
		demand: `Breaker.Break: "Any token of the grant will do."`,
		pair: func(p *probe, a, b *peer) {
			for _, place := range []uint64{0, p.traits.TokenStep / 2, max(1, p.traits.TokenStep) - 1} {
				grant := a.take(p.name("x"), p.long)
				b.broken(driver.Grant{Name: grant.Name, Token: grant.Token + place})
				a.notRenewed(grant, "it was broken")
			}
		},
	},
	{
		id: "break-holder", needs: []need{needBreaker},
		demand: `Breaker.Break: revokes the lock, and the holder's Renew and Release return ErrNotHeld`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			b.broken(grant)
			b.notBroken(grant.Name, grant.Token, "it was broken before")
			a.notRenewed(grant, "it was broken")
			a.notReleased(grant, "it was broken")
			next := b.take(grant.Name, p.long)
			a.notRenewed(grant, "it was broken, and another owner has it")
			a.notReleased(grant, "it was broken, and another owner has it")
			b.renewed(next, "the holder before, whose lock was broken, must not touch it")
		},
	},
}

func (c *peer) broken(grant driver.Grant) {
	if err := c.Store.(driver.Breaker).Break(c.p.ctx, grant.Name, grant.Token); err != nil {
		c.p.failf("Break of a lock that has token %d: %v", grant.Token, err)
	}
}

func (c *peer) notBroken(name string, token uint64, because string) {
	if err := c.Store.(driver.Breaker).Break(c.p.ctx, name, token); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Break of %q with token %d: want ErrNotHeld (%s), got: %v", name, token, because, err)
	}
}

// breaksOne demands that Break ends one of several holds in mode.
func (p *probe) breaksOne(a, b *peer, mode driver.Mode) {
	name := p.name("x")
	kept, broken := a.acquire(p.in(mode, name)), b.acquire(p.in(mode, name))
	a.broken(driver.Grant{Name: name, Token: p.lastOf(broken.Token)})
	a.notBroken(name, broken.Token, "it was broken before")
	b.notRenewed(broken, "it was broken")
	a.renewed(kept, "another holder's share was broken")
	a.released(kept)
	b.free(name, "one hold was broken and the other released")
}
