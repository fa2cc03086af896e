package drivertest

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const demandLimit = `Mode: "A limit makes the lock a semaphore, whose holders have a permit each: it admits that many."`

var needLimits = need{"Traits.Limits", func(s *setup) bool { return s.traits.Limits }}

// mismatched demands a ModeError that names the mode in which the name is in use.
func (c *peer) mismatched(mode, inUse driver.Mode, name string) {
	req := c.p.in(mode, name)
	c.releaseAtEnd(req)
	_, err := c.Acquire(c.p.ctx, req)
	mismatch, ok := errors.AsType[*driver.ModeError](err)
	if !ok || mismatch.Mode.Limit != inUse.Limit || mismatch.Name != name {
		c.p.failf("Acquire in mode %v of %q, which is in use in mode %v: want a *ModeError with both, got: %v", mode, name, inUse, err)
	}
}

var limitClauses = []clause{
	{
		id: "limit", needs: []need{needLimits},
		demand: demandLimit + " With 64 contenders there are never more holders, and afterwards that many get in",
		check: func(p *probe) {
			const contenders, limit, grants = 64, 3, 100
			peers := []*peer{p.open(), p.open(), p.open(), p.open()}
			name := p.name("x")
			var holders, granted atomic.Int64
			p.together(contenders, func(i int) {
				defer granted.Store(grants) // a contender that fails ends all: it keeps its permit
				c := peers[i%len(peers)]
				seen, since := int64(0), time.Now()
				// Attempts count for each other while they last, so refused contenders give way.
				pause := p.poll
				for granted.Load() < grants {
					grant, held := c.try(p.in(driver.Mode{Limit: limit}, name))
					if n := granted.Load(); n != seen {
						seen, since = n, time.Now()
					}
					if held != nil {
						if waited := time.Since(since); waited > p.onTime+p.grace {
							p.failf("no permit of %q became free for %v, although its holders have released it", name, waited)
						}
						p.wait(pause/2 + rand.N(pause))
						pause = min(2*pause, 16*p.poll)
						continue
					}
					pause = p.poll
					if n := holders.Add(1); n > limit {
						p.failf("%d holders of a semaphore with limit %d", n, limit)
					}
					p.wait(time.Millisecond)
					holders.Add(-1)
					granted.Add(1)
					c.released(grant)
				}
			})
			var all []driver.Grant
			for range limit {
				all = append(all, peers[0].acquire(p.in(driver.Mode{Limit: limit}, name)))
			}
			for _, grant := range all {
				peers[0].released(grant)
			}
		},
	},
	{
		id: "limit-permits", needs: []need{needLimits},
		demand: demandLimit + " Each permit is renewed, expires and is released for itself, and a repeated request takes no second one",
		pair: func(p *probe, a, b *peer) {
			name, two := p.name("x"), driver.Mode{Limit: 2}
			req := p.in(two, name)
			first := a.acquire(req)
			a.again(req, first)
			second := b.acquire(p.in(two, name))
			a.refusedIn(two, name, "both permits are in use")
			a.again(req, first)
			a.released(first)
			a.notReleased(first, "it was released before")
			third := p.in(two, name)
			third.TTL = p.ttl
			b.acquire(third) // and dies
			a.soon(p.in(two, name), "one of two permits expired")
			b.renewed(second, "another permit expired")
			a.refusedIn(two, name, "both permits are in use again")
		},
	},
	{
		id: "limit-mismatch", needs: []need{needLimits},
		demand: `Mode: "While a name is in use with a limit, the store refuses requests with another limit or none. While it is in use without a limit, the store refuses requests with one. The error is a [*ModeError]." "A free name may be used in any mode."`,
		pair: func(p *probe, a, b *peer) {
			name, two := p.name("x"), driver.Mode{Limit: 2}
			others := []driver.Mode{{}, {Limit: 1}, {Limit: 3}}
			if p.traits.Shared {
				others = append(others, shared)
			}
			permit := a.acquire(p.in(two, name))
			for _, mode := range others {
				b.mismatched(mode, two, name)
			}
			b.released(b.acquire(p.in(two, name)))
			a.released(permit)
			for _, mode := range others { // now it is free
				grant := b.acquire(p.in(mode, name))
				a.mismatched(two, mode, name)
				b.released(grant)
			}
			a.free(name, "it was released")
		},
	},
	{
		id: "limit-fair", needs: []need{needLimits, needFair},
		demand: `Mode: "Fair requests of all modes are served in the order of arrival": "as many permits as are free"`,
		pair: func(p *probe, a, b *peer) {
			name, two := p.name("x"), driver.Mode{Limit: 2}
			holders := []caller{a.ask(p.queuedIn(two, name)), b.ask(p.queuedIn(two, name))}
			queue := []caller{b.queue(two, name), a.queue(two, name), b.queue(two, name)}
			a.released(holders[0].grant)
			for _, later := range queue[1:] {
				later.early("a permit")
			}
			queue[0].serve()
			b.released(holders[1].grant)
			queue[2].early("a permit")
			queue[1].serve()
		},
	},
	{
		id: "limit-list", needs: []need{needLimits, needLister},
		demand: `Lister.List: "yields every holder of every lock whose name starts with prefix once", with its limit`,
		pair:   func(p *probe, a, b *peer) { p.listsHolders(a, b, driver.Mode{Limit: 5}) },
	},
	{
		id: "limit-break", needs: []need{needLimits, needLister, needBreaker},
		demand: `Breaker.Break: "ends the grant of name that has this token": "Other holders keep the lock."`,
		pair:   func(p *probe, a, b *peer) { p.breaksOne(a, b, driver.Mode{Limit: 5}) },
	},
}
