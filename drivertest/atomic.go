package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// An operation that should be one step and is two shows itself only if something happens
// between the two. These clauses let it happen at many moments, each with a name of its own:
// one of them may be the wrong moment. A sound store does the same at all of them.
var atomicClauses = []clause{
	{
		id:     "release-atomic",
		demand: `Store.Release: "The comparison and the release are one atomic step"`,
		pair: func(p *probe, a, b *peer) {
			p.together(2*len(moments), func(i int) {
				if at := moments[i/2]; i%2 == 0 {
					p.releaseTwiceAtOnce(a, b, at)
				} else {
					p.releaseAtExpiry(a, b, at)
				}
			})
		},
	},
	{
		id:     "renew-atomic",
		demand: `Store.Renew: "never creates or takes a lock, and never extends the lock of another owner", also if it arrives together with a Release`,
		pair: func(p *probe, a, b *peer) {
			p.together(2*len(moments), func(i int) { p.renewWhileReleased(a, b, moments[i/2], i%2 == 0) })
		},
	},
	{
		id:     "expiry-atomic",
		demand: `Store.Acquire: "The expiry is set in the same atomic step as the ownership": an attempt that is interrupted at any moment leaves nothing that lasts longer than TTL`,
		pair: func(p *probe, a, b *peer) {
			p.together(len(moments), func(i int) {
				req := p.request(p.name(moments[i].String()), p.ttl)
				ctx, cancel := context.WithTimeout(p.ctx, moments[i])
				defer cancel()
				_, _ = a.Acquire(ctx, req) // any outcome is fine
				b.soon(p.request(req.Name, p.ttl),
					fmt.Sprintf("the context of its holder's Acquire ended %v after the call", moments[i]))
			})
		},
	},
}

// releaseTwiceAtOnce repeats a Release, as a retry does, while a contender takes
// the lock that the first one freed.
func (p *probe) releaseTwiceAtOnce(a, b *peer, apart time.Duration) {
	grant := a.take(p.name("twice "+apart.String()), p.long)
	var next driver.Grant
	p.together(3, func(i int) {
		if i == 0 {
			next = b.hurry(p.request(grant.Name, p.long), "it was released twice")
			return
		}
		p.wait(time.Duration(i-1) * apart)
		_ = a.Release(p.ctx, grant) // one of the two may find that it is done
	})
	p.untouched(b, a, next, fmt.Sprintf("the holder before released it twice, %v apart", apart))
}

// releaseAtExpiry sends a Release just when the lock expires and a contender waits
// for that.
func (p *probe) releaseAtExpiry(a, b *peer, before time.Duration) {
	grant := a.take(p.name("expiry "+before.String()), p.ttl)
	over := time.Now().Add(p.ttl)
	var next driver.Grant
	p.together(2, func(i int) {
		p.wait(time.Until(over.Add(-before)))
		if i == 0 {
			_ = a.Release(p.ctx, grant) // in time or not, both are fine
		} else {
			next = b.hurry(p.request(grant.Name, p.long), "it was released, and its TTL is over")
		}
	})
	p.untouched(b, a, next, fmt.Sprintf("the holder before released it %v before it expired", before))
}

// untouched demands that holder still has the lock some time later.
func (p *probe) untouched(holder, contender *peer, grant driver.Grant, because string) {
	p.wait(20 * time.Millisecond) // for what is still on its way
	holder.renewed(grant, because)
	contender.refused(grant.Name, because)
}

// renewWhileReleased sends a Renew with a long TTL and the Release of the same grant at about
// the same time. With a contender, which then takes the lock for a short time, it checks that
// this lock does not last too long; without one, that the released lock does not come back.
func (p *probe) renewWhileReleased(a, b *peer, apart time.Duration, contender bool) {
	grant := a.take(p.name(fmt.Sprintf("%v %v", apart, contender)), p.long)
	because := fmt.Sprintf("it was released %v after its holder sent a Renew", apart)
	p.together(2, func(i int) {
		if i == 0 {
			_ = a.Renew(p.ctx, []driver.Grant{grant}) // in time or not, both are fine
			return
		}
		p.wait(apart)
		a.released(grant)
		if contender {
			b.hurry(p.request(grant.Name, p.ttl), because)
		}
	})
	if !contender {
		b.free(grant.Name, because)
		return
	}
	a.soon(p.request(grant.Name, p.ttl), because+", and the next holder's TTL has passed")
}
