package drivertest

import (
	"context"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

var watchClauses = []clause{
	{
		id: "watch-release", needs: []need{needWatcher},
		demand: `Watcher.Watch: "calls wake whenever another Acquire of req may succeed: the name was released", through the same store or another`,
		pair: func(p *probe, a, b *peer) {
			for _, holder := range []*peer{a, b, a} {
				grant := holder.take(p.name("x"), p.long)
				req := p.request(grant.Name, p.long)
				b.refused(req.Name, "it is held")
				w := b.watch(p.ctx, req)
				holder.released(grant)
				w.woken("the lock was released")
				w.stop()
				b.released(b.acquire(req))
			}
		},
	},
	{
		id: "watch-break", needs: []need{needWatcher, needBreaker},
		demand: `Breaker.Break: "ends the grant of name that has this token, in one atomic step, and notifies the waiters"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			w := b.watch(p.ctx, p.request(grant.Name, p.long))
			defer w.stop()
			p.open().broken(grant)
			w.woken("the lock was broken")
		},
	},
	{
		id: "watch-race", needs: []need{needWatcher},
		demand: `Watcher.Watch: "After Watch has returned, no such moment is missed": a waiter that watches, tries again and then sleeps is always woken`,
		pair: func(p *probe, a, b *peer) {
			p.together(len(moments), func(i int) {
				grant := a.take(p.name(moments[i].String()), p.long)
				req := p.request(grant.Name, p.long)
				b.refused(req.Name, "it is held")
				p.together(2, func(side int) {
					if side == 0 {
						p.wait(moments[i])
						a.released(grant)
						return
					}
					w := b.watch(p.ctx, req)
					defer w.stop()
					if _, held := b.try(req); held != nil {
						w.granted("the lock was released " + moments[i].String() + " after Watch was called")
					}
				})
			})
		},
	},
	{
		id: "watch-stop", needs: []need{needWatcher},
		demand: `Watcher.Watch: wake may be called from any goroutine, "but not after stop has returned"`,
		pair: func(p *probe, a, b *peer) {
			p.together(len(moments), func(i int) {
				grant := a.take(p.name(moments[i].String()), p.long)
				var stopped, late atomic.Bool
				stop := b.subscribe(p.ctx, p.request(grant.Name, p.long), func() {
					if stopped.Load() {
						late.Store(true)
					}
				})
				p.together(2, func(side int) {
					if side == 0 {
						a.released(grant)
						return
					}
					p.wait(moments[i] / 4)
					stop()
					stopped.Store(true)
				})
				a.released(a.take(grant.Name, p.long))
				p.wait(p.ttl / 4)
				if late.Load() {
					p.failf("wake was called after stop had returned")
				}
			})
		},
	},
	{
		id: "watch-context", needs: []need{needWatcher},
		demand: `Watcher.Watch: "The context bounds the subscribing, not the subscription."`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			ctx, cancel := context.WithCancel(p.ctx)
			w := b.watch(ctx, p.request(grant.Name, p.long))
			defer w.stop()
			cancel()
			w.drain()
			a.released(grant)
			w.woken("the lock was released, after the context of Watch had ended")
		},
	},
	{
		id: "watch-expiry", needs: []need{needWatcher, needExpiry},
		demand: `Watcher.Watch: "With Traits.WatchesExpiry, Watch also calls wake when the lock expires"`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			a.take(name, p.ttl)
			req := p.request(name, p.long)
			w := b.watch(p.ctx, req)
			defer w.stop()
			if _, held := b.try(req); held == nil {
				p.slowf("the lock expired before it was watched")
			}
			w.granted("the lock expired")
		},
	},
	{
		id: "watch-fair", needs: []need{needWatcher, needFair},
		demand: `Watcher.Watch: calls wake when "a fair waiter moved to the head", because the waiters before it gave up or were served`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			grant := a.take(name, p.long)
			first, second := p.queued(name), p.queued(name)
			a.mustQueue(first)
			b.mustQueue(second)
			w := b.watch(p.ctx, second)
			defer w.stop()
			a.released(grant)
			w.drain()
			_ = a.Release(p.ctx, driver.Grant{Name: name, Owner: first.Owner}) // gives up its place
			w.woken("the lock is free and the waiter before gave up")
			b.acquire(second)
		},
	},
}

// watched is a subscription that remembers one wake.
type watched struct {
	*peer
	req   driver.Request
	wakes chan struct{}
	stop  func()
}

func (c *peer) watch(ctx context.Context, req driver.Request) *watched {
	w := &watched{peer: c, req: req, wakes: make(chan struct{}, 1)}
	w.stop = c.subscribe(ctx, req, func() {
		select {
		case w.wakes <- struct{}{}:
		default:
		}
	})
	return w
}

func (c *peer) subscribe(ctx context.Context, req driver.Request, wake func()) (stop func()) {
	stop, err := c.Store.(driver.Watcher).Watch(ctx, req, wake)
	if err != nil {
		c.p.failf("Watch of %q: %v", req.Name, err)
	}
	return stop
}

func (w *watched) woken(because string) {
	receive(w.p, w.wakes, "a wake, after "+because)
}

// granted demands a wake after which the request is granted. A wake too many is harmless.
func (w *watched) granted(because string) driver.Grant {
	for {
		w.woken(because)
		if grant, held := w.try(w.req); held == nil {
			return grant
		}
	}
}

// drain forgets the wakes so far, including those that are on their way.
func (w *watched) drain() {
	w.p.wait(w.p.ttl / 4)
	select {
	case <-w.wakes:
	default:
	}
}
