package drivertest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	demandShared = `Mode: "An exclusive holder excludes all others. Shared holders exclude exclusive ones."`
	demandWriter = `Mode: "If the store refuses an exclusive request with Request.Queue because of shared holders, it keeps a place for the request": ` +
		`"While the place exists, the store refuses shared requests of owners that do not hold the lock."`
)

var (
	needShared = need{"Traits.Shared", func(s *setup) bool { return s.traits.Shared }}

	shared = driver.Mode{Shared: true}
)

// in asks for name in a mode, as a new owner.
func (p *probe) in(mode driver.Mode, name string) driver.Request {
	req := p.request(name, p.long)
	req.Mode = mode
	return req
}

// refusedIn demands that a new owner does not get the lock in that mode.
func (c *peer) refusedIn(mode driver.Mode, name, because string) {
	if grant, held := c.try(c.p.in(mode, name)); held == nil {
		c.p.failf("%q was granted to a new %v holder (token %d): %s", name, mode, grant.Token, because)
	}
}

// waitingWriter asks for name exclusively beside shared holders, and waits.
func (c *peer) waitingWriter(name string, ttl time.Duration) driver.Request {
	req := c.p.request(name, ttl)
	req.Queue = true
	c.releaseAtEnd(req)
	c.denied(req, "%q was granted exclusively beside shared holders", name)
	return req
}

var sharedClauses = []clause{
	{
		id: "shared-together", needs: []need{needShared},
		demand: demandShared + " Several shared holders have the lock at the same time, on whichever clients, with tokens that rise",
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			last := uint64(0)
			var holders []caller
			for i := range 6 {
				holder := []*peer{a, b}[i%2].ask(p.in(shared, name))
				if p.traits.Fencing != driver.FencingNone {
					p.rises(&last, holder.grant.Token)
				}
				holders = append(holders, holder)
			}
			for _, holder := range holders {
				b.refusedIn(driver.Mode{}, name, "shared holders have it")
				holder.renewed(holder.grant, "it is shared")
				holder.released(holder.grant)
				holder.notReleased(holder.grant, "it was released before")
			}
			a.free(name, "all shared holders have released it")
		},
	},
	{
		id: "shared-excluded", needs: []need{needShared},
		demand: demandShared + " A shared request is refused while the lock is held exclusively",
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			grant := a.take(name, p.long)
			b.refusedIn(shared, name, "it is held exclusively")
			a.released(grant)
			b.released(b.acquire(p.in(shared, name)))
			a.free(name, "it was released")
		},
	},
	{
		id: "shared-repeated", needs: []need{needShared},
		demand: `Store.Acquire: "Acquire is idempotent per owner", for shared holders too, also while an exclusive request waits`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			req := p.in(shared, name)
			grant := a.acquire(req)
			other := b.acquire(p.in(shared, name))
			a.again(req, grant)
			writer := b.waitingWriter(name, p.long)
			a.again(req, grant)
			a.released(grant)
			b.released(other)
			b.released(b.acquire(writer))
			a.free(name, "a repeated request is no second holder")
		},
	},
	{
		id: "shared-writer", needs: []need{needShared},
		demand: demandWriter,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			readers := []caller{a.ask(p.in(shared, name)), b.ask(p.in(shared, name))}
			writer := b.waitingWriter(name, p.long)
			for _, reader := range readers {
				a.refusedIn(shared, name, "an exclusive request waits")
				b.denied(writer, "the exclusive request was granted beside a shared holder")
				reader.renewed(reader.grant, "it is held")
				reader.released(reader.grant)
			}
			a.refusedIn(shared, name, "an exclusive request waits for it")
			b.released(b.acquire(writer))
			a.released(a.acquire(p.in(shared, name)))
		},
	},
	{
		id: "shared-writer-gone", needs: []need{needShared},
		demand: demandWriter + ` Release "also removes the owner's place in the queue", and a place lasts "at most for PlaceTTL after the last attempt"`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			reader := a.acquire(p.in(shared, name))
			writer := b.waitingWriter(name, p.long)
			a.refusedIn(shared, name, "an exclusive request waits")
			b.notReleased(driver.Grant{Name: name, Owner: writer.Owner}, "it only had a place in the queue")
			other := a.acquire(p.in(shared, name))
			b.waitingWriter(name, p.ttl) // and never asks again
			third := a.soon(p.in(shared, name), "the exclusive waiter is dead")
			for _, grant := range []driver.Grant{reader, other, third} {
				a.released(grant)
			}
		},
	},
	{
		id: "shared-expiry", needs: []need{needShared},
		demand: `Store.Acquire: the lock "belongs to req.Owner until TTL after the moment the store granted it", each share for itself`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			long := a.acquire(p.in(shared, name))
			short := p.in(shared, name)
			short.TTL = p.ttl
			dead := b.acquire(short)
			until := time.Now().Add(p.ttl + p.traits.Granularity + p.slack/4)
			for time.Now().Before(until) {
				a.renewed(long, "it is held")
				p.wait(p.ttl / 4)
			}
			b.notRenewed(dead, "it expired, although another share was renewed")
			a.refusedIn(driver.Mode{}, name, "a share has not expired")
			a.renewed(long, "another share expired")
			a.released(long)
			b.free(name, "one share expired and the other was released")
		},
	},
	{
		id: "shared-downgrade", needs: []need{needShared},
		demand: `Downgrader.Downgrade: "makes the exclusive lock of grant.Owner a shared one, in one atomic step": "Token and TTL stay."`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			grant := a.take(name, p.long)
			contender := p.in(driver.Mode{}, name)
			b.releaseAtEnd(contender)
			var over atomic.Bool
			p.together(2, func(side int) {
				if side == 0 {
					defer over.Store(true)
					a.downgraded(grant)
					return
				}
				for !over.Load() { // no moment in between
					if _, err := b.Acquire(p.ctx, contender); err == nil {
						p.failf("another owner got the lock while it was downgraded")
					}
				}
			})
			reader := b.acquire(p.in(shared, name))
			a.refusedIn(driver.Mode{}, name, "it is shared")
			a.downgraded(grant) // a second time
			a.renewed(grant, "it is shared now")
			a.released(grant)
			if err := a.Store.(driver.Downgrader).Downgrade(p.ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
				p.failf("Downgrade after Release: want ErrNotHeld, got: %v", err)
			}
			b.refusedIn(driver.Mode{}, name, "one shared holder is left")
			b.released(reader)
			b.free(name, "all holders have released it")
		},
	},
	{
		id: "shared-wake", needs: []need{needShared, needWatcher},
		demand: `Watcher.Watch: "calls wake whenever another Acquire of req may succeed": an exclusive waiter when the last shared holder is gone, shared waiters when the exclusive one is gone or downgrades`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			woken := func(what string, req driver.Request, act func()) {
				w := b.watch(p.ctx, req)
				defer w.stop()
				act()
				b.released(w.granted(what))
			}
			reader := a.acquire(p.in(shared, name))
			writer := b.waitingWriter(name, p.long)
			woken("the last shared holder released the lock", writer, func() { a.released(reader) })
			grant := a.take(name, p.long)
			woken("the exclusive holder released the lock", p.in(shared, name), func() { a.released(grant) })
			grant = a.take(name, p.long)
			woken("the exclusive holder downgraded", p.in(shared, name), func() { a.downgraded(grant) })
			a.released(grant)
		},
	},
	{
		id: "shared-fair", needs: []need{needShared, needFair},
		demand: `Mode: "Fair requests of all modes are served in the order of arrival. Shared requests that follow each other at the head of the queue are granted together"`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			grant := a.acquire(p.queued(name))
			first, second := a.queue(shared, name), b.queue(shared, name)
			writer, third := a.queue(driver.Mode{}, name), b.queue(shared, name)
			a.released(grant)
			third.early("the shared request behind the exclusive one")
			writer.early("the exclusive request behind the shared ones")
			second.serve()
			first.serve()
			for _, reader := range []*caller{&second, &first} {
				third.early("the shared request behind the exclusive one")
				writer.early("the exclusive request")
				reader.released(reader.grant)
			}
			third.early("the shared request behind the exclusive one")
			for _, next := range []*caller{&writer, &third} {
				next.serve()
				next.released(next.grant)
			}
			a.freeFairly(name, "every waiter was served")
		},
	},
	{
		id: "shared-list", needs: []need{needShared, needLister},
		demand: `Lister.List: "yields every holder of every lock whose name starts with prefix once", with its mode`,
		pair:   func(p *probe, a, b *peer) { p.listsHolders(a, b, shared) },
	},
	{
		id: "shared-break", needs: []need{needShared, needLister, needBreaker},
		demand: `Breaker.Break: "ends the grant of name that has this token": "Other holders keep the lock."`,
		pair:   func(p *probe, a, b *peer) { p.breaksOne(a, b, shared) },
	},
}

func (c *peer) downgraded(grant driver.Grant) {
	if err := c.Store.(driver.Downgrader).Downgrade(c.p.ctx, grant); err != nil {
		c.p.failf("Downgrade of %q by its holder: %v", grant.Name, err)
	}
}
