package drivertest

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// lateClauses are about requests that the network delivers after others that were
// sent later.
var lateClauses = []clause{
	{
		id: "late-attempt", needs: []need{needDelayed},
		demand: `Store.Release: "An Acquire of the owner that was sent before leaves no lock behind, however late the server carries it out"`,
		check:  func(p *probe) { p.lateAttempt(false) },
	},
	{
		id: "late-attempt-fair", needs: []need{needDelayed, needFair},
		demand: `Store.Release: "An Acquire of the owner that was sent before leaves no lock behind, however late the server carries it out", and no place in the queue`,
		check:  func(p *probe) { p.lateAttempt(true) },
	},
}

const (
	// attemptLimit is when the caller of an attempt leaves that is held up.
	attemptLimit = 200 * time.Millisecond
	// releaseLimit is for how long a Release may wait for such an attempt.
	releaseLimit = time.Second
	// undoLimit is how long after its arrival a late attempt may block others.
	undoLimit = 5 * time.Second
)

// lateAttempt lets the Release of an owner overtake its Acquire.
func (p *probe) lateAttempt(fair bool) {
	store, hold, err := p.Delayed(p.ctx)
	if err != nil {
		p.failf("Config.Delayed: %v", err)
	}
	a, b := p.adopt(store), p.open()
	a.released(a.take(p.name("before"), p.long)) // a connection is open, scripts are loaded
	req := p.request(p.name("x"), p.long)
	req.Fair, req.Queue = fair, fair
	a.releaseAtEnd(req)
	owner := driver.Grant{Name: req.Name, Owner: req.Owner}

	deliver := hold()
	ctx, cancel := context.WithTimeout(p.ctx, attemptLimit)
	_, err = a.Acquire(ctx, req)
	cancel()
	if err == nil {
		deliver()
		p.failf("Acquire succeeded while everything it sends was held: Config.Delayed delays nothing")
	}
	p.unknown("Acquire", err)
	ctx, cancel = context.WithTimeout(p.ctx, releaseLimit)
	_ = a.Release(ctx, owner) // it may wait for the attempt or not: the store undoes it in any case
	cancel()
	deliver()
	next := p.request(req.Name, p.long)
	next.Fair, next.Queue = fair, fair
	grant := b.within(undoLimit+p.slack, p.poll, next, "its owner was released, and its Acquire, which came late, must leave nothing behind")
	b.renewed(grant, "a late Acquire of another owner must not touch it")
}
