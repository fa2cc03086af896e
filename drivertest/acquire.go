package drivertest

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var acquireClauses = []clause{
	{
		id:     "traits",
		demand: `Traits: "facts about a store, the same for every lock in it": constant, the same on every connection, with limits that leave room; "A store with SessionBound reports losses."`,
		check: func(p *probe) {
			a := p.open()
			switch t := a.Traits(); {
			case t != p.traits:
				p.failf("one connection says %+v, another %+v", p.traits, t)
			case t.Store == "":
				p.failf("the store has no name")
			case t.MinTTL < 0 || t.Granularity < 0 || t.MaxTTL != 0 && t.MaxTTL < t.MinTTL:
				p.failf("the TTL is from %v to %v in steps of %v", t.MinTTL, t.MaxTTL, t.Granularity)
			case t.SessionBound && !t.ReportsLoss:
				p.failf("locks end with a session, and no holder is told: SessionBound without ReportsLoss")
			}
			a.released(a.take(p.name("x"), p.long))
			if t := a.Traits(); t != p.traits {
				p.failf("before a lock was taken %+v, afterwards %+v", p.traits, t)
			}
		},
	},
	{
		id:     "grant",
		demand: `Store.Acquire: "If the lock is free it belongs to req.Owner"; the Grant says so: its name, its owner, a token that is "never zero" and a TTL that is promised`,
		check: func(p *probe) {
			a := p.open()
			req := p.request(p.name("x"), p.long)
			grant := a.acquire(req)
			switch {
			case grant.Name != req.Name:
				p.failf("asked for %q, the Grant is for %q", req.Name, grant.Name)
			case grant.Owner != req.Owner:
				p.failf("the Grant has an owner that did not ask for it")
			case grant.Token == 0:
				p.failf("the token is zero")
			case grant.TTL <= 0 || grant.TTL > req.TTL+p.traits.Granularity:
				p.failf("asked for a TTL of %v, granted %v", req.TTL, grant.TTL)
			}
			a.renewed(grant, "it was just granted")
			a.released(grant)
		},
	},
	{
		id:     "held-error",
		demand: `HeldError: "describes the holder of a lock": name, token, holder and remaining time are right, or zero where they are unknown; a store that can list the holder describes it`,
		pair: func(p *probe, a, b *peer) {
			req := p.request(p.name("x"), p.long)
			req.Holder = p.holder(`note with "quotes", 'these', \ and 雪`)
			grant := a.acquire(req)
			held := b.refused(req.Name, "the first owner did not release it")
			known := offers[driver.Lister](p.setup)
			switch {
			case held.Name != req.Name:
				p.failf("refused %q, but the HeldError is about %q", req.Name, held.Name)
			case held.Token != 0 && !p.belongs(held.Token, grant):
				p.failf("the holder has %d tokens from %d, the HeldError says %d", p.traits.TokenStep, grant.Token, held.Token)
			case held.Holder != req.Holder && (known || held.Holder != driver.Holder{}):
				p.failf("the holder is %+v, the HeldError says %+v", req.Holder, held.Holder)
			case held.Remaining < 0 || held.Remaining > p.long+p.traits.Granularity:
				p.failf("the TTL is %v, the HeldError says that %v remain", p.long, held.Remaining)
			case held.Remaining != 0 && held.Remaining < p.long/2:
				p.failf("granted a moment ago for %v, the HeldError says that only %v remain", p.long, held.Remaining)
			}
		},
	},
	{
		id:     "acquire-no-wait",
		demand: `Store.Acquire: "makes one attempt, atomically, and never waits for the lock"`,
		pair: func(p *probe, a, b *peer) {
			a.take(p.name("x"), p.long)
			const tries = 5 // a busy machine is not slow each time
			for range tries {
				start := time.Now()
				b.refused(p.name("x"), "the first owner did not release it")
				if time.Since(start) <= p.slack {
					return
				}
			}
			p.failf("each of %d refusals took longer than %v", tries, p.slack)
		},
	},
	{
		id:     "acquire-idempotent",
		demand: `Store.Acquire: "is idempotent per owner": the same token as before, and nothing that needs a second Release`,
		pair: func(p *probe, a, b *peer) {
			req := p.request(p.name("x"), p.long)
			first := a.acquire(req)
			for range 3 {
				a.again(req, first)
			}
			b.refused(req.Name, "asking again does not give it up")
			a.released(first)
			b.free(req.Name, "it was acquired four times by one owner and released once")
		},
	},
	{
		id:     "acquire-restarts-ttl",
		demand: `Store.Acquire: "if req.Owner already holds the lock, its TTL starts again"`,
		pair: func(p *probe, a, b *peer) {
			req := p.request(p.name("x"), p.ttl)
			first := time.Now()
			grant := a.acquire(req)
			over := time.Now().Add(p.ttl)
			p.wait(p.ttl / 2)
			sent := time.Now()
			again := a.acquire(req)
			if took := time.Since(first); took >= grant.TTL {
				p.slowf("the owner asked again after up to %v: it may have been a new acquisition", took)
			}
			p.wait(time.Until(over.Add(p.ttl / 16)))
			p.before(sent.Add(again.TTL), func() { b.refused(req.Name, "its owner asked again") })
			b.soon(p.request(req.Name, p.ttl), "its owner asked again, and not since")
		},
	},
	{
		id:     "acquire-never-shortens",
		demand: `Store.Acquire: asking again "never ends the lock earlier than it would have ended without it"`,
		pair: func(p *probe, a, b *peer) {
			p.together(2, func(i int) {
				req := p.request(p.name(fmt.Sprint(i)), p.long)
				req.Fair = i == 1 && p.traits.Fair
				grant := a.acquire(req)
				req.TTL = p.ttl
				a.again(req, grant)
				p.outlast(p.ttl)
				b.refused(req.Name, "it was acquired for longer than its owner asked for the second time")
				a.renewed(grant, "asking again for less must not end it")
			})
		},
	},
}
