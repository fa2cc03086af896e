package drivertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

var expiryClauses = []clause{
	{
		id:     "expiry",
		demand: `Grant.TTL: "it grants the lock to no other owner before TTL has passed since Acquire or Renew was sent"; Store.Acquire: it belongs to the owner "until TTL after the moment the store granted it"; Traits.Granularity: "it may notice an expiry late by that much"`,
		pair: func(p *probe, a, b *peer) {
			const names, rounds = 4, 3 // an expiry that is too early shows only if a poll is early enough
			p.together(names, func(i int) {
				for round := range rounds {
					req := p.request(p.name(fmt.Sprint(i, round)), p.ttl)
					sent := time.Now()
					b.afterTTL(a.acquire(req), sent, "it was not renewed")
				}
			})
		},
	},
	{
		id:     "ttl-limits",
		demand: `Traits: "MinTTL and MaxTTL limit Request.TTL": the shortest and the longest TTL that a store claims work, and a Client refuses all others with ErrBadTTL`,
		pair: func(p *probe, a, b *peer) {
			if least := p.traits.MinTTL; least > 0 {
				a.take(p.name("least"), least)
				b.soon(p.request(p.name("least"), least), "its TTL is over")
			}
			most := p.traits.LongestTTL()
			grant := a.take(p.name("most"), most)
			b.refused(grant.Name, "its TTL is far from over")
			a.renewed(grant, "it is held")
			b.refused(grant.Name, "it was renewed")
			a.released(grant)
			for _, ttl := range []time.Duration{most + 1, p.traits.MinTTL - 1} {
				if _, err := p.client(p.long).TryLock(p.ctx, p.name("refused"), dlock.WithTTL(ttl)); !errors.Is(err, dlock.ErrBadTTL) {
					p.failf("TryLock with a TTL of %v, limits %v and %v: want ErrBadTTL, got: %v", ttl, p.traits.MinTTL, p.traits.MaxTTL, err)
				}
			}
		},
	},
	{
		id: "clock-skew", needs: []need{needSkewed},
		demand: `Store.Acquire: the TTL is "counted by the store's clock": a client whose clock is wrong takes no lock early and leaves none for longer`,
		check: func(p *probe) {
			a := p.open()
			p.together(2, func(i int) {
				by := []time.Duration{time.Hour, -time.Hour}[i]
				store, err := p.Skewed(p.ctx, by)
				if err != nil {
					p.failf("Config.Skewed: %v", err)
				}
				odd, name := p.adopt(store), p.name(by.String())
				grant := a.take(name, p.long)
				odd.refused(name, "its TTL has not passed, though the contender's clock is wrong by "+by.String())
				a.renewed(grant, "a contender with a wrong clock only asked")
				a.released(grant)

				sent := time.Now()
				grant = odd.take(name, p.ttl)
				p.before(sent.Add(grant.TTL), func() { odd.renewed(grant, "its holder's clock is off, its TTL is not over") })
				a.afterTTL(grant, sent, "the holder's clock is off by "+by.String())
				odd.notReleased(driver.Grant{Name: name, Owner: grant.Owner, Token: grant.Token}, "it expired")
			})
		},
	},
	{
		id:     "close",
		demand: `Store.Close: "releases no locks, unless Traits.SessionBound. It may be called twice."; Request.Lost is called "before Close ends the grant"`,
		pair: func(p *probe, a, b *peer) {
			sent := time.Now()
			req := p.request(p.name("x"), p.ttl)
			var reported, free atomic.Bool
			if p.traits.ReportsLoss {
				req.Lost = func() {
					_, err := b.Acquire(p.ctx, p.request(req.Name, p.ttl))
					free.Store(err == nil)
					reported.Store(true)
				}
			}
			grant := a.acquire(req)
			for range 2 {
				if err := a.Close(); err != nil {
					p.failf("Close: %v", err)
				}
			}
			switch {
			case p.traits.SessionBound && p.traits.ReportsLoss && !reported.Load():
				p.failf("Close did not report the loss of %q", grant.Name)
			case free.Load():
				p.failf("%q was free before Close reported its loss", grant.Name)
			}
			if p.traits.SessionBound {
				b.soon(p.request(grant.Name, p.ttl), "the session of its holder was closed")
				return
			}
			p.before(sent.Add(grant.TTL), func() {
				b.refused(grant.Name, "the store of its holder was closed, but it was not released")
			})
			b.soon(p.request(grant.Name, p.ttl), "the holder went away")
		},
	},
}
