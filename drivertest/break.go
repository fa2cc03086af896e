package drivertest

import (
	"errors"

	"github.com/dlock-go/dlock/driver"
)

var breakClauses = []clause{
	{
		id: "break-token", needs: []need{needBreaker},
		demand: `Breaker.Break: "releases name in one atomic step if it is held with exactly this token"; "Otherwise it returns [ErrNotHeld]."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			for _, token := range []uint64{grant.Token + 1, grant.Token - 1, 0, 1 << 62} {
				b.notBroken(grant.Name, token, "it is held with another token")
			}
			a.renewed(grant, "it was broken only with tokens that it does not have")
			a.released(grant)
			b.notBroken(grant.Name, grant.Token, "it was released")
			b.notBroken(p.name("never held"), 1, "nobody ever held it")

			next := a.take(grant.Name, p.long)
			b.notBroken(grant.Name, grant.Token, "another owner has it now")
			a.renewed(next, "it was broken only with the token of the one before")
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
			b.renewed(next, "the one before, whose lock was broken, must not touch it")
		},
	},
}

// broken demands that Break revokes the lock.
func (c *peer) broken(grant driver.Grant) {
	if err := c.Store.(driver.Breaker).Break(c.p.ctx, grant.Name, grant.Token); err != nil {
		c.p.failf("Break of a lock that is held with that token: %v", err)
	}
}

// notBroken demands that Break finds nothing to break.
func (c *peer) notBroken(name string, token uint64, because string) {
	if err := c.Store.(driver.Breaker).Break(c.p.ctx, name, token); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Break of %q with token %d: want ErrNotHeld (%s), got: %v", name, token, because, err)
	}
}
