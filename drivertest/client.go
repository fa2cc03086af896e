package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Users see a store through a Client, so the kit checks it through one as well.
var clientClauses = []clause{
	{
		id:     "client-waits",
		demand: `Client.Lock waits for the lock and gets it soon after it was unlocked elsewhere, woken by Watcher or by trying again`,
		check: func(p *probe) {
			p.plainAndFair(func(name string, lease *dlock.Lease, b *dlock.Client, opts ...dlock.Option) {
				got := make(chan error, 1)
				go func() { got <- b.Do(p.ctx, name, func(context.Context) error { return nil }, opts...) }()
				select {
				case err := <-got:
					p.failf("Lock returned while the lock was held: %v", err)
				case <-time.After(p.ttl / 2):
				}
				p.unlock(lease)
				p.succeeds(got, "Lock, after the lock was unlocked")
			})
		},
	},
	{
		id:     "client-expiry",
		demand: `Client.Lock gets the lock of a dead holder after its TTL`,
		check: func(p *probe) {
			p.open().take(p.name("x"), p.ttl)
			client := p.client(p.long)
			got := make(chan error, 1)
			go func() { got <- client.Do(p.ctx, p.name("x"), func(context.Context) error { return nil }) }()
			p.succeeds(got, "Lock, after the holder died")
		},
	},
	{
		id:     "client-cancel",
		demand: `Client.Lock returns promptly when its context ends, "the error of a cancelled wait wraps the context's cause", and leaves neither a lock nor a place in a queue behind`,
		check: func(p *probe) {
			p.plainAndFair(func(name string, lease *dlock.Lease, b *dlock.Client, opts ...dlock.Option) {
				changedMind := errors.New("changed my mind")
				ctx, cancel := context.WithCancelCause(p.ctx)
				defer cancel(nil)
				got := make(chan error, 1)
				go func() { _, err := b.Lock(ctx, name, opts...); got <- err }()
				p.wait(p.ttl / 2) // so that it waits in the store
				cancel(changedMind)
				if err := receive(p, got, "the return of Lock, after its context had ended"); !errors.Is(err, changedMind) {
					p.failf("Lock whose context was cancelled: want an error that wraps the cause, got: %v", err)
				}
				p.unlock(lease)
				c := p.client(p.long)
				var next *dlock.Lease
				var err error
				// The place is given up in the background, at once.
				p.eventually(p.slack, func() bool { next, err = c.TryLock(p.ctx, name, opts...); return err == nil }, func() string {
					return fmt.Sprintf("the lock was unlocked and the only waiter gave up, but TryLock said: %v", err)
				})
				p.unlock(next)
			})
		},
	},
	{
		id:     "client-limit",
		demand: `WithWait: "After that time the error is a [*HeldError]", which names the holder if the store knows it`,
		check: func(p *probe) {
			a := p.client(p.long)
			b := p.client(p.long)
			lease := p.lock(a, p.name("x"), dlock.WithNote("this holder"))
			limit, start := p.ttl/2, time.Now()
			_, err := b.Lock(p.ctx, p.name("x"), dlock.WithWait(limit))
			took := time.Since(start)
			held, ok := errors.AsType[*dlock.HeldError](err)
			if !ok {
				p.failf("want a *HeldError after %v, got after %v: %v", limit, took, err)
			}
			if took < limit {
				p.failf("the limit is %v, the wait took %v", limit, took)
			}
			if took > limit+p.slack {
				p.slowf("the limit is %v, the wait took %v", limit, took)
			}
			if held.Name != p.name("x") || offers[driver.Lister](p.setup) && held.Holder.Note != "this holder" {
				p.failf("the HeldError for %q names %q, held by %v", p.name("x"), held.Name, held.Holder)
			}
			p.unlock(lease)
		},
	},
	{
		id: "client-starves", needs: []need{needFair},
		demand: `WithFair: "no caller starves": callers of all kinds that always want the lock all get it`,
		check: func(p *probe) {
			fair, limit := dlock.WithFair(), dlock.WithLimit(1)
			locks := [][]dlock.Option{{fair}, {fair}, nil} // two fair callers alone could always have the lock
			if p.traits.Shared {
				locks = append(locks, []dlock.Option{dlock.WithShared()}, []dlock.Option{dlock.WithShared(), fair})
			}
			p.nonStarves("lock", locks)
			if p.traits.Limits {
				p.nonStarves("permit", [][]dlock.Option{{limit, fair}, {limit, fair}, {limit}})
			}
		},
	},
	{
		id:     "client-handover",
		demand: `Client.Lock: ten clients that all want the lock get it, one at a time, and none waits for ever`,
		check: func(p *probe) {
			const clients = 10
			var section criticalSection
			p.together(clients, func(int) {
				client := p.client(p.ttl + p.slack)
				limit := 8*p.slack + p.grace
				lease, err := client.Lock(p.ctx, p.name("x"), dlock.WithWait(limit))
				if err != nil {
					p.failf("one of %d clients that all want the lock did not get it within %v: %v", clients, limit, err)
				}
				defer func() { // of any failure
					if cause := context.Cause(lease.Context()); errors.Is(cause, dlock.ErrLost) {
						p.slowf("a client lost the lock before it unlocked it: %v", cause)
					}
				}()
				section.enter(p, lease.Token())
				p.unlock(lease)
			})
			if got := section.counter.Load(); got != clients {
				p.failf("%d guarded increments made %d", clients, got)
			}
		},
	},
}

// nonStarves demands that all callers, of two processes, get the lock while the others want it again and
// again. Each has options of its own.
func (p *probe) nonStarves(label string, callers [][]dlock.Option) {
	const grants = 3
	name, clients := p.name(label), []*dlock.Client{p.client(p.long), p.client(p.long)}
	var served atomic.Int64
	p.together(len(callers), func(i int) {
		defer served.Store(math.MaxInt32) // the others end too, also if it fails
		for n := 0; int(served.Load()) < len(callers); {
			limit, start := p.onTime+p.grace, time.Now()
			lease, err := clients[i%2].Lock(p.ctx, name, append(slices.Clone(callers[i]), dlock.WithWait(limit))...)
			if err != nil {
				p.failf("after %d grants caller %d of %q waited for %v: %v", n, i, label, limit, err)
			}
			if took := time.Since(start); took > p.onTime {
				p.slowf("caller %d of %q waited for %v", i, label, took)
			}
			p.wait(time.Millisecond)
			p.unlock(lease)
			if n++; n == grants {
				served.Add(1)
			}
		}
	})
}

// client returns a client with a store of its own.
func (p *probe) client(ttl time.Duration) *dlock.Client {
	c := dlock.New(p.open().Store, &dlock.Options{TTL: ttl, Holder: p.holder("")})
	p.atEnd(func(context.Context) { _ = c.Close() })
	return c
}

// plainAndFair calls f without options and, if the store is fair, also WithFair. Another client
// holds the lock.
func (p *probe) plainAndFair(f func(name string, lease *dlock.Lease, b *dlock.Client, opts ...dlock.Option)) {
	calls := [][]dlock.Option{nil, {dlock.WithFair()}}
	if !p.traits.Fair {
		calls = calls[:1]
	}
	p.together(len(calls), func(i int) {
		name, opts := p.name(fmt.Sprint(i)), calls[i]
		f(name, p.lock(p.client(p.long), name, opts...), p.client(p.long), opts...)
	})
}

func (p *probe) lock(c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	lease, err := c.Lock(p.ctx, name, opts...)
	if err != nil {
		p.failf("Lock of %q: %v", name, err)
	}
	return lease
}

func (p *probe) unlock(lease *dlock.Lease) {
	if err := lease.Unlock(p.ctx); err != nil {
		p.failf("Unlock of %q: %v", lease.Name(), err)
	}
}

// succeeds demands success on time.
func (p *probe) succeeds(done <-chan error, what string) {
	if err := receive(p, done, what); err != nil {
		p.failf("%s: %v", what, err)
	}
}
