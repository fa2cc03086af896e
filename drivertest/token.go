package drivertest

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const demandTokens = `Store.Acquire: "the Grant carries a token larger than that of every earlier grant of the name"`

var tokenClauses = []clause{
	{
		id: "token-after-expiry", needs: []need{needFencing},
		demand: demandTokens + ", after an expiry too",
		pair: func(p *probe, a, b *peer) {
			last := a.take(p.name("x"), p.ttl).Token
			grant := b.soon(p.request(p.name("x"), p.ttl), "it was not renewed")
			p.rises(&last, grant.Token)
			req := p.request(p.name("x"), p.ttl)
			grant = a.soon(req, "it was not renewed")
			p.rises(&last, grant.Token)
			a.acquire(req)
			a.expired(grant)
			// The owner is the same, the acquisition is not.
			p.rises(&last, a.acquire(req).Token)
		},
	},
	{
		id: "token-after-break", needs: []need{needFencing, needBreaker},
		demand: demandTokens + ", after a Break too",
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			for range 3 {
				grant := a.take(p.name("x"), p.long)
				p.rises(&last, grant.Token)
				b.broken(grant)
			}
		},
	},
	{
		id: "token-after-reopen", needs: []need{needFencing},
		demand: demandTokens + ", after all clients were closed and opened again too",
		check:  func(p *probe) { p.riseAfterReopen(0) },
	},
	{
		id: "token-order", needs: []need{needFencing},
		demand: demandTokens + ", after a Release too, whichever client asks: a grant that was requested after another reply had arrived has the larger token",
		check: func(p *probe) {
			peers := []*peer{p.open(), p.open(), p.open()}
			var seen atomic.Uint64 // the largest token that some client had in its hands
			deadline := time.Now().Add(p.ttl)
			p.together(2*len(peers), func(i int) {
				c := peers[i%len(peers)]
				for time.Now().Before(deadline) {
					before := seen.Load()
					grant, held := c.attempt(p.request(p.name("x"), p.long))
					if held != nil {
						p.wait(rand.N(2 * time.Millisecond))
						continue
					}
					p.rises(&before, grant.Token)
					for now := seen.Load(); now < grant.Token && !seen.CompareAndSwap(now, grant.Token); now = seen.Load() {
					}
					c.released(grant)
				}
			})
		},
	},
}

// rises demands that token is larger than last, and makes it the last.
func (p *probe) rises(last *uint64, token uint64) {
	if token <= *last {
		p.failf("token %d was granted after token %d", token, *last)
	}
	*last = token
}

const demandSpan = `Grant.Span: "Every later grant of the name has a larger token than all of them."`

var spanClauses = []clause{
	{
		id: "span-after-release", needs: []need{needFencing},
		demand: demandSpan + " After a Release too",
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			for i := range 6 {
				c, n := []*peer{a, b}[i%2], uint64(span)
				if i < 2 {
					n = 1 // a store may draw the first tokens of a client in another way
				}
				grant := c.takeSpan(p.name("x"), n)
				p.risesBeyond(&last, grant)
				c.renewed(grant, "it is held")
				c.released(grant)
			}
			p.risesBeyond(&last, a.take(p.name("x"), p.long))
		},
	},
	{
		id: "span-after-expiry", needs: []need{needFencing},
		demand: demandSpan + " After an expiry too",
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			req := p.request(p.name("x"), p.ttl)
			req.Span = span
			p.risesBeyond(&last, a.acquire(req))
			grant := b.soon(p.request(req.Name, p.long), "it was not renewed")
			p.risesBeyond(&last, grant)
		},
	},
	{
		id: "span-after-reopen", needs: []need{needFencing},
		demand: demandSpan + " After all clients were closed and opened again too",
		check:  func(p *probe) { p.riseAfterReopen(span) },
	},
	{
		id: "span-repeated", needs: []need{needFencing},
		demand: `Store.Acquire: "if req.Owner already holds the lock, its TTL starts again and the Grant has the same tokens as before"`,
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			for _, n := range []uint64{0, 1, span} {
				req := p.request(p.name("x"), p.long)
				req.Span = n
				first := a.acquire(req)
				again := a.acquire(req)
				if again.Token != first.Token || max(1, again.Span) != max(1, first.Span) {
					p.failf("the owner had %d tokens from %d, and got %d from %d for asking again", first.Span, first.Token, again.Span, again.Token)
				}
				p.risesBeyond(&last, again)
				a.released(again)
				grant := b.take(req.Name, p.long)
				p.risesBeyond(&last, grant)
				b.released(grant)
			}
		},
	},
	{
		id: "span-break", needs: []need{needFencing, needLister, needBreaker},
		demand: `Grant.Span: "Acquire's HeldError, List and Break identify the lock by one of these tokens, always the same."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.takeSpan(p.name("x"), span)
			shown := b.list(grant.Name)[grant.Name].Token
			if shown < grant.Token || shown-grant.Token >= max(1, grant.Span) {
				p.failf("%d tokens from %d were granted, and token %d is listed", grant.Span, grant.Token, shown)
			}
			if held := b.refused(grant.Name, "it is held"); held.Token != shown {
				p.failf("token %d is listed, and the HeldError says token %d", shown, held.Token)
			}
			a.renewed(grant, "it is held")
			b.broken(driver.Grant{Name: grant.Name, Token: shown})
			a.notRenewed(grant, "it was broken")
			a.notReleased(grant, "it was broken")
		},
	},
}

// span is how many tokens a clause asks for: more than other clauses use meanwhile, since a
// store may have one counter for all names.
const span = 1 << 24

// takeSpan is take with a Span of n.
func (c *peer) takeSpan(name string, n uint64) driver.Grant {
	req := c.p.request(name, c.p.long)
	req.Span = n
	return c.acquire(req)
}

// riseAfterReopen demands that tokens rise if each grant, with a Span of n, has a store of its own.
func (p *probe) riseAfterReopen(n uint64) {
	last := uint64(0)
	for range 3 {
		a := p.open()
		grant := a.takeSpan(p.name("x"), n)
		p.risesBeyond(&last, grant)
		a.released(grant)
		if err := a.Close(); err != nil {
			p.failf("Close: %v", err)
		}
	}
}

// risesBeyond is rises for all tokens of a grant.
func (p *probe) risesBeyond(last *uint64, grant driver.Grant) {
	p.rises(last, grant.Token)
	if *last += max(1, grant.Span) - 1; *last < grant.Token {
		p.failf("%d tokens from %d on are more than there are numbers", grant.Span, grant.Token)
	}
}
