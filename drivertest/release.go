package drivertest

import "github.com/dlock-go/dlock/driver"

var releaseClauses = []clause{
	{
		id:     "release-frees",
		demand: `Store.Release: "gives up the lock that grant.Owner has under grant.Name"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			b.refused(grant.Name, "its holder did not release it")
			a.released(grant)
			b.free(grant.Name, "its holder released it")
		},
	},
	{
		id:     "release-owner",
		demand: `Store.Release: "never touches the lock of another owner"; "[ErrNotHeld] means that the owner did not hold the lock"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			stranger := driver.NewOwner()
			for _, c := range []*peer{a, b} {
				c.notReleased(driver.Grant{Name: grant.Name, Owner: stranger, Token: grant.Token, TTL: grant.TTL}, "another owner has it")
				c.notReleased(driver.Grant{Name: grant.Name, Owner: stranger}, "another owner has it")
			}
			a.renewed(grant, "somebody else's Release must not touch it")
			b.refused(grant.Name, "somebody else's Release must not touch it")
			b.notReleased(driver.Grant{Name: p.name("never held"), Owner: stranger, Token: 1}, "nobody ever held it")
		},
	},
	{
		id:     "release-token",
		demand: `Store.Release: "If grant.Token is not zero, Release gives up the lock only if it was granted with that token"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			for _, token := range []uint64{grant.Token + 1, grant.Token - 1, 1 << 62} {
				other := grant
				if other.Token = token; token != 0 {
					a.notReleased(other, "the owner holds it with another token")
				}
			}
			b.refused(grant.Name, "it was released only with tokens that it does not have")
			a.released(grant)
		},
	},
	{
		id:     "release-undo",
		demand: `Store.Release: "With a zero token the owner alone decides, which undoes an Acquire of unknown outcome"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			a.released(driver.Grant{Name: grant.Name, Owner: grant.Owner})
			b.free(grant.Name, "its owner released it without a token")
			a.notReleased(driver.Grant{Name: grant.Name, Owner: driver.NewOwner()}, "this owner never had it")
		},
	},
	{
		id:     "release-twice",
		demand: `Store.Release: "never touches the lock of another owner, however late or often it arrives"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			a.released(grant)
			a.notReleased(grant, "it was released before")
			next := b.take(grant.Name, p.long)
			a.notReleased(grant, "it was released before, and another owner has it")
			a.notReleased(driver.Grant{Name: grant.Name, Owner: grant.Owner}, "it was released before, and another owner has it")
			b.renewed(next, "a repeated Release of the one before must not touch it")
		},
	},
	{
		id:     "release-late",
		demand: `Store.Release: "never touches the lock of another owner, however late or often it arrives"; an expired lock is not held`,
		pair: func(p *probe, a, b *peer) {
			lone := a.take(p.name("nobody after it"), p.ttl)
			late := a.take(p.name("x"), p.ttl)
			next := b.soon(p.request(late.Name, p.long), "it was not renewed")
			a.notReleased(late, "it expired, and another owner has it")
			a.notReleased(driver.Grant{Name: late.Name, Owner: late.Owner}, "it expired, and another owner has it")
			b.renewed(next, "a late Release of the one before must not touch it")
			a.notReleased(lone, "it expired before the other")
		},
	},
}
