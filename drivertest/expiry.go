package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

var expiryClauses = []clause{
	{
		id:     "expiry-early",
		demand: `Grant.TTL: "it grants the lock to no other owner before TTL has passed since Acquire or Renew was sent"`,
		check: func(p *probe) {
			const names, rounds = 4, 3 // to be seen early, it must be looked at early enough
			a, b := p.open2()
			p.together(names, func(i int) {
				for round := range rounds {
					req := p.request(p.name(fmt.Sprint(i, round)), p.ttl)
					sent := time.Now()
					grant := a.acquire(req)
					_, at := b.soon(p.request(req.Name, p.ttl), p.ttl+p.slack, "it was not renewed")
					if kept := at.Sub(sent); kept < grant.TTL {
						p.failf("somebody else had the lock %v after it was asked for with a TTL of %v", kept, grant.TTL)
					}
				}
			})
		},
	},
	{
		id:     "expiry-late",
		demand: `Store.Acquire: it belongs to the owner "until TTL after the moment the store granted it"; Traits.Granularity: "it may notice an expiry late by that much"`,
		check: func(p *probe) {
			a, b := p.open2()
			a.take(p.name("x"), p.ttl)
			b.soon(p.request(p.name("x"), p.ttl), p.ttl+p.slack, "its holder is dead, and its TTL is over")
			if err := a.Close(); err != nil {
				p.failf("Close: %v", err)
			}
		},
	},
	{
		id:     "ttl-limits",
		demand: `Traits: "MinTTL and MaxTTL limit Request.TTL": the shortest and the longest TTL that a store claims work, and a Client refuses all others with ErrBadTTL`,
		check: func(p *probe) {
			a, b := p.open2()
			if least := p.traits.MinTTL; least > 0 {
				a.take(p.name("least"), least)
				b.soon(p.request(p.name("least"), least), least+p.slack, "its TTL is over")
			}
			most := p.traits.LongestTTL()
			grant := a.take(p.name("most"), most)
			b.refused(grant.Name, "its TTL is far from over")
			a.renewed(grant, "it is held")
			b.refused(grant.Name, "it was renewed")
			a.released(grant)
			p.refusesTTL(most + 1)
			p.refusesTTL(p.traits.MinTTL - 1)
		},
	},
	{
		id:     "clock-skew",
		demand: `Store.Acquire: the TTL is "counted by the store's clock": a client whose clock is wrong takes no lock early and leaves none for longer`,
		needs:  []need{needSkewed},
		check: func(p *probe) {
			a := p.open()
			p.together(2, func(i int) {
				by := []time.Duration{time.Hour, -time.Hour}[i]
				store, err := p.Skewed(p.ctx, by)
				if err != nil {
					p.failf("Config.Skewed: %v", err)
				}
				p.skewed(a, p.adopt(store), p.name(by.String()), by)
			})
		},
	},
	{
		id:     "close",
		demand: `Store.Close: "releases no locks, unless Traits.SessionBound. It may be called twice."`,
		check: func(p *probe) {
			a, b := p.open2()
			sent := time.Now()
			grant := a.take(p.name("x"), p.ttl)
			for range 2 {
				if err := a.Close(); err != nil {
					p.failf("Close: %v", err)
				}
			}
			if p.traits.SessionBound {
				b.soon(p.request(grant.Name, p.ttl), p.slack, "the session of its holder was closed")
				return
			}
			p.before(sent.Add(grant.TTL), func() {
				b.refused(grant.Name, "the store of its holder was closed, but it was not released")
			})
			b.soon(p.request(grant.Name, p.ttl), p.ttl+p.slack, "the holder went away")
		},
	},
}

// refusesTTL demands that a Client does not even ask the store.
func (p *probe) refusesTTL(ttl time.Duration) {
	client, closeClient := p.client(p.long)
	defer closeClient()
	if _, err := client.TryLock(p.ctx, p.name("refused"), dlock.WithTTL(ttl)); !errors.Is(err, dlock.ErrBadTTL) {
		p.failf("TryLock with a TTL of %v, limits %v and %v: want ErrBadTTL, got: %v", ttl, p.traits.MinTTL, p.traits.MaxTTL, err)
	}
}

// skewed lets odd, a client with a wrong clock, and a, a client with a right one, compete.
func (p *probe) skewed(a, odd *peer, name string, by time.Duration) {
	grant := a.take(name, p.long)
	odd.refused(name, "its TTL has not passed, though the contender's clock is wrong by "+by.String())
	a.renewed(grant, "a contender with a wrong clock only asked")
	a.released(grant)

	sent := time.Now()
	grant = odd.take(name, p.ttl)
	p.before(sent.Add(grant.TTL), func() { odd.renewed(grant, "its holder's clock is off, its TTL is not over") })
	_, at := a.soon(p.request(name, p.ttl), p.ttl+p.slack, "its TTL is over, though the holder's clock is off by "+by.String())
	if kept := at.Sub(sent); kept < grant.TTL {
		p.failf("somebody else had the lock %v after a holder whose clock is off by %v asked for %v", kept, by, grant.TTL)
	}
	odd.notReleased(driver.Grant{Name: name, Owner: grant.Owner, Token: grant.Token}, "it expired")
}
