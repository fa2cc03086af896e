package drivertest

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const demandTokens = `Traits.TokenStep: "Every later grant of the name has a larger token than all of them"`

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
		check: func(p *probe) {
			last := uint64(0)
			for range 3 {
				a := p.open()
				grant := a.take(p.name("x"), p.long)
				p.rises(&last, grant.Token)
				a.released(grant)
				if err := a.Close(); err != nil {
					p.failf("Close: %v", err)
				}
			}
		},
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
					for now := seen.Load(); now < before && !seen.CompareAndSwap(now, before); now = seen.Load() {
					}
					c.released(grant)
				}
			})
		},
	},
	{
		id: "token-repeated", needs: []need{needFencing},
		demand: `Store.Acquire: "if req.Owner already holds the lock, its TTL starts again and the Grant has the same tokens as before"`,
		pair: func(p *probe, a, b *peer) {
			last := uint64(0)
			for _, c := range []*peer{a, b} {
				req := p.request(p.name("x"), p.long)
				grant := c.acquire(req)
				c.again(req, grant)
				p.rises(&last, grant.Token)
				c.released(grant)
			}
		},
	},
	{
		id: "token-shown", needs: []need{needFencing, needLister},
		demand: `Grant.Token: "Acquire's HeldError, List and Find show one of these tokens, always the same."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			shown := b.list(grant.Name)[grant.Name].Token
			if !p.belongs(shown, grant) {
				p.failf("%d tokens from %d were granted, and token %d is listed", p.traits.TokenStep, grant.Token, shown)
			}
			if held := b.refused(grant.Name, "it is held"); held.Token != shown {
				p.failf("token %d is listed, and the HeldError says token %d", shown, held.Token)
			}
		},
	},
}

// rises demands that a grant's first token is larger than last, and makes its last token the last.
func (p *probe) rises(last *uint64, first uint64) {
	if first <= *last {
		p.failf("token %d was granted after token %d", first, *last)
	}
	*last = p.lastOf(first)
	if *last < first {
		p.failf("%d tokens from %d on are more than there are numbers", p.traits.TokenStep, first)
	}
}

// lastOf returns the last token of a grant by its first one.
func (p *probe) lastOf(first uint64) uint64 { return first + max(1, p.traits.TokenStep) - 1 }

// belongs reports whether a token is one of a grant's.
func (p *probe) belongs(token uint64, grant driver.Grant) bool {
	return grant.Token <= token && token <= p.lastOf(grant.Token)
}
