package drivertest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var exclusionClauses = []clause{
	{
		id:     "exclusion-clients",
		demand: `Store.Acquire: "If another owner has the lock, the error is a [*HeldError]", for every client and goroutine: no two hold it at once and no update is lost`,
		check: func(p *probe) {
			const clients, each = 3, 4
			var section criticalSection
			peers := []*peer{p.open(), p.open(), p.open()}
			deadline := time.Now().Add(p.ttl + p.slack/2)
			var entered atomic.Int64
			p.together(clients*each, func(i int) {
				c := peers[i%clients]
				for time.Now().Before(deadline) || entered.Load() == 0 && time.Now().Before(deadline.Add(p.grace)) {
					grant, held := c.attempt(p.request(p.name("x"), p.long))
					if held != nil {
						p.wait(rand.N(2 * time.Millisecond))
						continue
					}
					section.enter(p, grant.Token)
					entered.Add(1)
					c.released(grant)
				}
			})
			if got, want := section.counter.Load(), entered.Load(); got != want || want == 0 {
				p.failf("%d guarded increments made %d", want, got)
			}
		},
	},
	{
		id:     "exclusion-first",
		demand: `Store.Acquire: "makes one attempt, atomically": of 32 contenders for a name never seen before exactly one is granted`,
		check: func(p *probe) {
			const contenders, rounds = 32, 10
			peers := []*peer{p.open(), p.open(), p.open(), p.open()}
			for round := range rounds {
				name := p.name(string(rune('a' + round)))
				var winners, losses atomic.Int64
				start := make(chan struct{})
				var ready sync.WaitGroup
				ready.Add(contenders)
				go func() { ready.Wait(); close(start) }()
				p.together(contenders, func(i int) {
					ready.Done()
					<-start
					req := p.request(name, p.long)
					req.Lost = func() { losses.Add(1) }
					if _, held := peers[i%len(peers)].try(req); held == nil {
						winners.Add(1)
					}
				})
				switch n := winners.Load(); {
				case n == 1:
				case losses.Load() > 0: // the next contender was right to take it
					p.slowf("%d of %d contenders were granted the lock, and %d of them lost it again", n, contenders, losses.Load())
				default:
					p.failf("%d of %d contenders were granted the lock", n, contenders)
				}
			}
		},
	},
	{
		id:     "concurrent-use",
		demand: `Store: "All methods are safe for concurrent use."`,
		check: func(p *probe) {
			const goroutines, rounds = 16, 8
			a := p.open()
			p.together(goroutines, func(i int) {
				name := p.name(string(rune('a' + i)))
				for range rounds {
					req := p.request(name, p.long)
					grant, err := a.Acquire(p.ctx, req)
					if err != nil {
						p.failf("Acquire of %q, which only this goroutine uses: %v", name, err)
					}
					if grant.Name != name || grant.Owner != req.Owner {
						p.failf("asked for %q, the Grant has another owner or is for %q", name, grant.Name)
					}
					a.renewed(grant, "only this goroutine uses it")
					a.released(grant)
				}
			})
		},
	},
}

// criticalSection detects two holders inside, a lost update, and a token that is not larger
// than the one before. Its parts are atomic because a
// lock that lives elsewhere orders nothing for the race detector.
type criticalSection struct {
	inside  atomic.Int32
	counter atomic.Int64
	token   atomic.Uint64
}

func (s *criticalSection) enter(p *probe, token uint64) {
	if n := s.inside.Add(1); n != 1 {
		p.failf("%d owners hold one lock at the same time", n)
	}
	if last := s.token.Swap(token); token <= last && p.traits.Fencing != driver.FencingNone {
		p.failf("token %d was granted after token %d", token, last)
	}
	seen := s.counter.Load()
	p.wait(rand.N(500 * time.Microsecond)) // long enough for another holder, if the store lets it in
	s.counter.Store(seen + 1)
	s.inside.Add(-1)
}
