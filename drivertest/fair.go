package drivertest

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var fairClauses = []clause{
	{
		id: "fair-order", needs: []need{needFair},
		demand: `Request.Fair: "asks for the lock in the order of arrival among fair requests", on whichever clients they arrive`,
		check: func(p *probe) {
			const waiters = 6
			peers := []*peer{p.open(), p.open(), p.open()}
			name := p.name("x")
			holder := peers[0].ask(p.queued(name))
			var queue []caller
			for i := range waiters {
				queue = append(queue, peers[i%len(peers)].queue(driver.Mode{}, name))
			}
			for turn, next := range queue {
				holder.released(holder.grant)
				for i := waiters - 1; i > turn; i-- { // later waiters ask first
					queue[i].early(fmt.Sprintf("waiter %d of %d, behind waiter %d,", i+1, waiters, turn+1))
				}
				next.serve()
				holder = next
			}
		},
	},
	{
		id: "fair-place", needs: []need{needFair},
		demand: `Request.Queue: "A fair store keeps the owner's place": asking again neither loses it nor takes a second one`,
		pair: func(p *probe, a, b *peer) {
			name, grant, first, second := a.holdFairly()
			a.mustQueue(first)
			b.mustQueue(second)
			for range 3 {
				a.mustQueue(first)
			}
			a.released(grant)
			b.denied(second, "the first in the queue lost its place by asking again")
			a.released(a.acquire(first))
			b.released(b.acquire(second))
			a.free(name, "every waiter was served once")
			a.freeFairly(name, "every waiter was served once")
		},
	},
	{
		id: "fair-holder", needs: []need{needFair},
		demand: `Store.Acquire: "Acquire is idempotent per owner", also for a fair holder with waiters in the queue`,
		pair: func(p *probe, a, b *peer) {
			for _, waiter := range []*peer{b, a} {
				name := p.name("x")
				req, next := p.queued(name), p.queued(name)
				grant := a.acquire(req)
				waiter.mustQueue(next)
				a.again(req, grant)
				a.released(grant)
				waiter.released(waiter.acquire(next))
			}
		},
	},
	{
		id: "fair-kept", needs: []need{needFair},
		demand: `Request.Queue: the place is kept "at most for PlaceTTL after the last attempt", and for as long as attempts come`,
		pair: func(p *probe, a, b *peer) {
			_, grant, first, second := a.holdFairly()
			first.TTL = p.ttl
			last := time.Now()
			b.mustQueue(first)
			a.mustQueue(second)
			for range 5 { // longer than one TTL in all
				p.wait(p.ttl / 3)
				sent := time.Now()
				b.mustQueue(first)
				if apart := time.Since(last); apart >= p.ttl {
					p.slowf("the first in the queue came again after up to %v: its place may have expired", apart)
				}
				last = sent
			}
			p.before(last.Add(p.ttl), func() {
				a.released(grant)
				a.denied(second, "the first in the queue lost its place after %v, though it came again every %v", 5*p.ttl/3, p.ttl/3)
				b.acquire(first)
			})
		},
	},
	{
		id: "fair-watched", needs: []need{needFair, needQueues, needWatcher},
		demand: `Traits.Queues: "A place lasts for as long as the waiter's watch, so that the waiter need not try again to keep it."`,
		pair: func(p *probe, a, b *peer) {
			_, grant, first, second := a.holdFairly()
			first.TTL = p.ttl
			b.mustQueue(first)
			w := b.watch(p.ctx, first)
			defer w.stop()
			a.mustQueue(second)
			p.wait(3 * p.ttl / 2)
			a.released(grant)
			a.denied(second, "the first in the queue lost its place in %v without an attempt, though it watches", 3*p.ttl/2)
			w.granted("the lock was released")
		},
	},
	{
		id: "fair-cancelled", needs: []need{needFair},
		demand: `Store.Release: "also removes the owner's place in the queue": a waiter that gave up is skipped`,
		pair: func(p *probe, a, b *peer) {
			name, grant, quitter, next := a.holdFairly()
			a.mustQueue(quitter)
			b.mustQueue(next)
			a.notReleased(driver.Grant{Name: name, Owner: quitter.Owner}, "it only had a place in the queue")
			a.released(grant)
			grant, held := b.try(next)
			if held != nil {
				p.failf("the lock is free and the first in the queue gave up, but the second is refused: %v, remaining %v", held, held.Remaining)
			}
			b.released(grant)
			b.freeFairly(name, "every waiter gave up or was served")
		},
	},
	{
		id: "fair-dead", needs: []need{needFair},
		demand: `Request.Queue: the place is kept "at most for PlaceTTL after the last attempt, so that a dead waiter does not block others for long"`,
		pair: func(p *probe, a, b *peer) {
			_, grant, dead, next := a.holdFairly()
			dead.TTL = p.ttl
			b.mustQueue(dead)
			b.mustQueue(next)
			a.released(grant)
			b.soon(next, fmt.Sprintf("it is free, and the first in the queue has not come for longer than its TTL of %v", p.ttl))
		},
	},
	{
		id: "fair-seconds", needs: []need{needFair, needPlaces},
		demand: `Request.Queue: the place is kept "at most for PlaceTTL after the last attempt", however long the TTL of the lock is`,
		pair: func(p *probe, a, b *peer) {
			_, grant, dead, next := a.holdFairly()
			dead.TTL = p.traits.LongestTTL()
			b.mustQueue(dead)
			a.released(grant)
			b.releaseAtEnd(next)
			_, held := b.try(next)
			if held == nil {
				p.slowf("the place of the first in the queue expired")
			}
			if limit := driver.PlaceTTL(dead.TTL) + p.slack; held.Remaining <= 0 || held.Remaining > limit {
				p.failf("a waiter for a lock with a TTL of %v died, and keeps its place for %v; want %v at most", dead.TTL, held.Remaining, limit)
			}
		},
	},
	{
		id: "fair-queued", needs: []need{needFair, needPlaces},
		demand: `Request.Fair: "If it is refused, a store without Traits.Queues says by HeldError.Queued that there are such waiters."`,
		pair: func(p *probe, a, b *peer) {
			requests := map[string][]driver.Mode{"lock": {{}}}
			if p.traits.Shared {
				requests["lock"] = append(requests["lock"], shared)
			}
			if p.traits.Limits {
				requests["permit"] = []driver.Mode{{Limit: 1}}
			}
			for label, modes := range requests {
				name := p.name(label)
				queued := func(want bool, because string) {
					for _, mode := range modes {
						_, held := b.try(p.in(mode, name))
						if held == nil || held.Queued != want {
							p.failf("%s: a request in mode %v got %+v; want a refusal with Queued %v", because, mode, held, want)
						}
					}
				}
				grant := a.acquire(p.in(modes[0], name))
				queued(false, "no caller waits")
				first, second := a.queue(modes[0], name), b.queue(modes[0], name)
				queued(true, "two fair requests wait")
				a.released(grant)
				first.serve()
				queued(true, "a fair request waits")
				b.notReleased(driver.Grant{Name: name, Owner: second.req.Owner}, "it only had a place in the queue")
				queued(false, "all fair requests were served or gave up")
				first.released(first.grant)
			}
		},
	},
	{
		id: "fair-no-queue", needs: []need{needFair},
		demand: `Request.Queue: "A fair attempt without Queue leaves no place behind and fails while the queue is not empty."`,
		pair: func(p *probe, a, b *peer) {
			name, grant, passer, waiting := a.holdFairly()
			passer.Queue = false
			b.denied(passer, "granted while another owner has it")
			a.released(grant)
			a.freeFairly(name, "the only other attempt did not queue")

			grant = a.acquire(p.queued(name))
			a.mustQueue(waiting)
			a.released(grant)
			b.denied(passer, "an attempt without Queue was granted while a waiter was in the queue")
			a.acquire(waiting)
		},
	},
}

// caller is an owner and the client that it uses for all its calls: a place or a lock may be
// bound to the session of that client.
type caller struct {
	*peer
	req   driver.Request
	grant driver.Grant
}

// ask demands the lock at once.
func (c *peer) ask(req driver.Request) caller { return caller{c, req, c.acquire(req)} }

// queue asks fairly, and demands a refusal for now.
func (c *peer) queue(mode driver.Mode, name string) caller {
	req := c.p.queuedIn(mode, name)
	c.mustQueue(req)
	return caller{peer: c, req: req}
}

// queuedIn is a fair request in a mode that will come again.
func (p *probe) queuedIn(mode driver.Mode, name string) driver.Request {
	req := p.queued(name)
	req.Mode = mode
	return req
}

// early demands that the caller is refused.
func (c *caller) early(what string) { c.denied(c.req, "%s was served before its turn", what) }

// serve demands that the caller gets the lock.
func (c *caller) serve() { c.grant = c.acquire(c.req) }

// holdFairly takes a lock, and returns two fair requests that may queue for it.
func (c *peer) holdFairly() (name string, grant driver.Grant, first, second driver.Request) {
	name = c.p.name("x")
	return name, c.acquire(c.p.queued(name)), c.p.queued(name), c.p.queued(name)
}

// queued is a fair request that will come again.
func (p *probe) queued(name string) driver.Request {
	req := p.request(name, p.long)
	req.Fair, req.Queue = true, true
	return req
}

func (c *peer) denied(req driver.Request, complaint string, args ...any) {
	if _, held := c.try(req); held == nil {
		c.p.failf(complaint, args...)
	}
}

// mustQueue demands that a fair request is refused for now.
func (c *peer) mustQueue(req driver.Request) {
	c.releaseAtEnd(req)
	c.denied(req, "a fair request was granted while another owner holds %q", req.Name)
}

// freeFairly demands that a fair request is granted: the queue is empty.
func (c *peer) freeFairly(name, because string) {
	req := c.p.queued(name)
	req.Queue = false
	c.freeFor(req, because)
}
