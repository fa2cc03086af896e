package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var contextClauses = []clause{
	{
		id:     "cancelled-context",
		demand: `Store: "Every method that takes a context returns soon after the context is done"; if it was done before the call, the call changes nothing, and the error is neither ErrHeld nor ErrNotHeld`,
		pair: func(p *probe, a, b *peer) {
			done, cancel := context.WithCancel(p.ctx)
			cancel()
			start := time.Now()

			req := p.request(p.name("free"), p.long)
			a.releaseAtEnd(req)
			_, err := a.Acquire(done, req)
			p.unknown("Acquire of a free lock", err)
			b.free(req.Name, "it was asked for with a context that was done")

			grant := a.take(p.name("held"), p.long)
			_, err = b.Acquire(done, p.request(grant.Name, p.long))
			p.unknown("Acquire of a lock that is held", err)
			errs := a.Renew(done, []driver.Grant{grant})
			if len(errs) != 1 {
				p.failf("Renew of one grant with a context that is done: want one error, got: %v", errs)
			}
			p.unknown("Renew", errs[0])
			p.unknown("Release", a.Release(done, grant))
			a.renewed(grant, "it was released only with a context that was done")

			if took := time.Since(start); took > p.slack+time.Second {
				p.slowf("four calls with a context that was done took %v", took)
			}
		},
	},
	{
		id:     "cancelled-midway",
		demand: `Store: after a context that ended during the call the store works on, and "The lock then expires, or a Release with the owner alone releases it."`,
		check: func(p *probe) {
			a := p.open()
			for _, at := range moments {
				req := p.request(p.name(at.String()), p.ttl)
				a.releaseAtEnd(req)
				ctx, cancel := context.WithTimeout(p.ctx, at)
				_, err := a.Acquire(ctx, req)
				cancel()
				if errors.Is(err, driver.ErrHeld) {
					p.failf("Acquire of a free lock, cancelled after %v: %v", at, err)
				}
				if err := a.Release(p.ctx, driver.Grant{Name: req.Name, Owner: req.Owner}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
					p.failf("Release with the owner alone, after an Acquire that was cancelled after %v: %v", at, err)
				}
			}
			a.released(a.take(p.name("after all"), p.long))
		},
	},
}

// unknown demands an error that claims nothing about the lock.
func (p *probe) unknown(call string, err error) {
	if err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld) {
		p.failf("%s with a context that is done: want an error that is neither ErrHeld nor ErrNotHeld, got: %v", call, err)
	}
}
