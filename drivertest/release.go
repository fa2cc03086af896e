package drivertest

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var releaseClauses = []clause{
	{
		id:     "release-frees",
		demand: `Store.Release: "ends the lock of grant.Owner under grant.Name"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			b.refused(grant.Name, "its holder did not release it")
			a.released(grant)
			b.free(grant.Name, "its holder released it")
		},
	},
	{
		id:     "release-owner",
		demand: `Store.Release: "never touches the lock of another owner"; "[ErrNotHeld] means that the owner did not hold the lock"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			stranger := driver.NewOwner()
			for _, c := range []*peer{a, b} {
				c.notReleased(driver.Grant{Name: grant.Name, Owner: stranger, Token: grant.Token, TTL: grant.TTL}, "another owner has it")
				c.notReleased(driver.Grant{Name: grant.Name, Owner: stranger}, "another owner has it")
			}
			a.renewed(grant, "the Release of another owner must not touch it")
			b.refused(grant.Name, "the Release of another owner must not touch it")
			b.notReleased(driver.Grant{Name: p.name("never held"), Owner: stranger, Token: 1}, "it was never held")
		},
	},
	{
		id:     "release-token",
		demand: `Store.Release: "If grant.Token is not zero, Release ends the lock only if it was granted with that token"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			for _, token := range []uint64{grant.Token + 1, grant.Token - 1, 1 << 62} {
				other := grant
				if other.Token = token; token != 0 {
					a.notReleased(other, "the owner holds it with another token")
				}
			}
			b.refused(grant.Name, "it was released only with tokens that it does not have")
			a.released(grant)
		},
	},
	{
		id:     "release-undo",
		demand: `Store.Release: "With a zero token the owner alone decides, which undoes an Acquire of unknown outcome"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			a.released(driver.Grant{Name: grant.Name, Owner: grant.Owner})
			b.free(grant.Name, "its owner released it without a token")
			a.notReleased(driver.Grant{Name: grant.Name, Owner: driver.NewOwner()}, "this owner never had it")
		},
	},
	{
		id:     "release-twice",
		demand: `Store.Release: "never touches the lock of another owner, however late or often it arrives"`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			a.released(grant)
			a.notReleased(grant, "it was released before")
			next := b.take(grant.Name, p.long)
			a.notReleased(grant, "it was released before, and another owner has it")
			a.notReleased(driver.Grant{Name: grant.Name, Owner: grant.Owner}, "it was released before, and another owner has it")
			b.renewed(next, "a repeated Release of the holder before must not touch it")
		},
	},
	{
		id:     "release-late",
		demand: `Store.Release: "never touches the lock of another owner, however late or often it arrives"; an expired lock is not held`,
		pair: func(p *probe, a, b *peer) {
			lone := a.take(p.name("not taken again"), p.ttl)
			late := a.take(p.name("x"), p.ttl)
			next := b.soon(p.request(late.Name, p.long), "it was not renewed")
			a.notReleased(late, "it expired, and another owner has it")
			a.notReleased(driver.Grant{Name: late.Name, Owner: late.Owner}, "it expired, and another owner has it")
			b.renewed(next, "a late Release of the holder before must not touch it")
			a.notReleased(lone, "it expired before the other")
		},
	},
}

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
