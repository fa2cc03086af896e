package drivertest

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
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
					grant, ok := c.attempt(p.request(p.name("x"), p.long))
					if !ok {
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
