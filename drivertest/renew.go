package drivertest

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var renewClauses = []clause{
	{
		id:     "renew-extends",
		demand: `Store.Renew: "starts the TTL of each grant again"`,
		pair: func(p *probe, a, b *peer) {
			sent := time.Now()
			grant := a.take(p.name("x"), p.ttl)
			for range 4 { // longer than one TTL in all
				p.wait(p.ttl / 3)
				p.before(sent.Add(grant.TTL), func() {
					sent = time.Now()
					a.renewed(grant, "it is renewed three times in every TTL")
				})
				p.before(sent.Add(grant.TTL), func() { b.refused(grant.Name, "it was renewed a moment ago") })
			}
			b.afterTTL(grant, sent, "it was renewed, and is not any more")
		},
	},
	{
		id:     "renew-never-shortens",
		demand: `Store.Renew: "never ends a lock earlier than it would have ended without it": a Renew that the store carries out late does not undo a later one`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			short := grant
			short.TTL = p.ttl // as if an earlier Renew arrived now: it would end the lock sooner
			a.renewed(short, "it is held")
			p.outlast(p.ttl)
			b.refused(grant.Name, "it was acquired for longer than a later Renew asked for")
			a.renewed(grant, "a Renew for less must not end it")
		},
	},
	{
		id:     "renew-nil",
		demand: `Store.Renew: "returns nil if it renewed all grants"`,
		check: func(p *probe) {
			a := p.open()
			var grants []driver.Grant
			for _, label := range []string{"x", "y", "z"} {
				grants = append(grants, a.take(p.name(label), p.long))
			}
			if errs := a.Renew(p.ctx, grants); errs != nil {
				p.failf("three locks that are held: %v", errs)
			}
			if errs := a.Renew(p.ctx, nil); errs != nil {
				p.failf("no locks at all: %v", errs)
			}
		},
	},
	{
		id:     "renew-batch",
		demand: `Store.Renew: "otherwise one error per grant, nil for those that it renewed"`,
		pair: func(p *probe, a, b *peer) {
			expired := a.take(p.name("expired"), p.ttl)
			a.expired(expired)
			sent := time.Now()
			held := a.take(p.name("held"), p.ttl)
			released := a.take(p.name("released"), p.long)
			a.released(released)
			also := a.take(p.name("also held"), p.ttl)
			foreign := b.take(p.name("foreign"), p.long)
			foreign.Owner = driver.NewOwner()

			grants := []driver.Grant{expired, held, released, also, foreign}
			p.before(sent.Add(held.TTL), func() {
				sent = time.Now()
				errs := a.Renew(p.ctx, grants)
				if len(errs) != len(grants) {
					p.failf("%d errors for %d grants: %v", len(errs), len(grants), errs)
				}
				for i, err := range errs {
					if mine := i == 1 || i == 3; mine && err != nil || !mine && !errors.Is(err, driver.ErrNotHeld) {
						p.failf("the grants are expired, held, released, held, foreign; the errors: %v", errs)
					}
				}
			})
			b.afterTTL(held, sent, "it was renewed, and is not any more")
		},
	},
	{
		id:     "renew-owner",
		demand: `Store.Renew: "never extends the lock of another owner"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.ttl)
			forged := driver.Grant{Name: grant.Name, Owner: driver.NewOwner(), Token: grant.Token, TTL: p.long}
			a.notRenewed(forged, "another owner has it")
			b.notRenewed(forged, "another owner has it")
			b.soon(p.request(grant.Name, p.ttl), "its holder did not renew it, only another owner tried")
		},
	},
	{
		id:     "renew-without-token",
		demand: `Store.Renew: "With a zero token the owner alone decides"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			without := grant
			without.Token = 0
			a.renewed(without, "its owner holds it")
			a.renewed(grant, "it has the token that it had")
			forged := driver.Grant{Name: grant.Name, Owner: driver.NewOwner(), TTL: p.long}
			b.notRenewed(forged, "another owner has it")
			a.released(grant)
			a.notRenewed(without, "it was released")
		},
	},
	{
		id:     "renew-expired",
		demand: `Store.Renew: "never creates or takes a lock", "[ErrNotHeld] is final": not after it was released or has expired, "however late it arrives"`,
		pair: func(p *probe, a, b *peer) {
			released, expired := a.take(p.name("released"), p.long), a.take(p.name("expired"), p.ttl)
			a.released(released)
			a.expired(expired)
			for _, grant := range []driver.Grant{released, expired} {
				a.notRenewed(grant, "it was released, or it expired")
				a.notRenewed(grant, "it was released, or it expired")
				b.free(grant.Name, "it was released, or it expired, and a Renew must not bring it back")
			}
		},
	},
	{
		id:     "renew-late",
		demand: `Store.Renew: "never extends the lock of another owner, however late it arrives"`,
		pair: func(p *probe, a, b *peer) {
			late := a.take(p.name("x"), p.ttl)
			req := p.request(late.Name, p.ttl)
			b.soon(req, "it was not renewed")
			sent := time.Now()
			next := b.acquire(req) // its TTL starts again after sent
			p.before(sent.Add(next.TTL), func() {
				a.notRenewed(late, "it expired, and another owner has it")
				b.renewed(next, "a late Renew of the holder before must not take it")
			})
			a.soon(p.request(late.Name, p.ttl), "its holder did not renew it, only the holder before tried")
		},
	},
}
