package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// probe is what a clause works with: connections that are closed and locks
// that are released when the clause ends, and ways to wait and to fail.
type probe struct {
	*terms
	ctx    context.Context
	clause string

	mu   sync.Mutex
	undo []func(context.Context)
}

// failure ends a check that failed, from any depth of calls.
type failure string

// tooSlow ends a check that cannot tell: the machine was so busy that a TTL passed before
// the store was asked.
type tooSlow struct{}

// failf ends the clause: the store broke it.
func (p *probe) failf(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

// run returns why the clause failed, or nothing, and whether the check was too slow to tell.
func (p *probe) run(c *clause) (detail string, slow bool) {
	defer p.leave()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			detail = string(r)
		case tooSlow:
			slow = true
		default:
			panic(r)
		}
	}()
	if c.pair != nil {
		c.pair(p, p.open(), p.open())
	} else {
		c.check(p)
	}
	return "", false
}

// before runs f, and ignores a failure of f after the deadline. Every check that relies on
// a short TTL that has not passed yet belongs into such an f.
func (p *probe) before(deadline time.Time, f func()) {
	defer func() {
		r := recover()
		if _, failed := r.(failure); failed && !time.Now().Before(deadline) {
			r = tooSlow{}
		}
		if r != nil {
			panic(r)
		}
	}()
	f()
}

// leave undoes what the clause did, the last thing first.
func (p *probe) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.slack+10*time.Second)
	defer cancel()
	p.mu.Lock()
	undo := p.undo
	p.undo = nil
	p.mu.Unlock()
	for _, f := range slices.Backward(undo) {
		f(ctx)
	}
}

func (p *probe) atEnd(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undo = append(p.undo, f)
}

// name returns a lock name that no other clause uses.
func (p *probe) name(label string) string { return p.prefix + p.clause + "/" + label }

// holder describes a contender, recognisably.
func (p *probe) holder(note string) driver.Holder {
	return driver.Holder{Host: "kit.example", PID: 4711, Program: "drivertest " + p.runID, Note: note}
}

// wait lets time pass.
func (p *probe) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		p.failf("not finished within %v", p.limit)
	}
}

// eventually polls until ok returns true, and reports whether it did within limit.
func (p *probe) eventually(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(limit); ; {
		late := time.Now().After(deadline) // decided before the call: the last call of ok is after the limit
		if ok() {
			return true
		}
		if late {
			return false
		}
		p.wait(p.poll)
	}
}

// together runs f n times at once and fails if one of them does.
func (p *probe) together(n int, f func(i int)) {
	failures := make(chan any, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer func() {
				switch r := recover().(type) {
				case nil:
				case failure, tooSlow:
					failures <- r
				default:
					panic(r)
				}
			}()
			f(i)
		})
	}
	all.Wait()
	select {
	case r := <-failures:
		panic(r)
	default:
	}
}

// peer is a connection to the store, as another machine would have it.
type peer struct {
	driver.Store
	p *probe
}

// open connects another machine.
func (p *probe) open() *peer {
	store, err := p.Open(p.ctx)
	if err != nil {
		p.failf("Open: %v", err)
	}
	return p.adopt(store)
}

func (p *probe) adopt(store driver.Store) *peer {
	p.atEnd(func(context.Context) { _ = store.Close() })
	return &peer{store, p}
}

// request asks for name as an owner that is new.
func (p *probe) request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl, Holder: p.holder("")}
}

// releaseAtEnd makes sure that nothing of req is left when the clause ends.
func (c *peer) releaseAtEnd(req driver.Request) {
	c.p.atEnd(func(ctx context.Context) {
		_ = c.Release(ctx, driver.Grant{Name: req.Name, Owner: req.Owner})
	})
}

// try makes one attempt. It returns a grant, or the refusal. Any other error ends the
// clause.
func (c *peer) try(req driver.Request) (driver.Grant, *driver.HeldError) {
	grant, err := c.Acquire(c.p.ctx, req)
	if err == nil {
		c.releaseAtEnd(req)
		return grant, nil
	}
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		c.p.failf("Acquire: want a grant or a *HeldError, got: %v", err)
	}
	return driver.Grant{}, held
}

// acquire demands the lock at once.
func (c *peer) acquire(req driver.Request) driver.Grant {
	grant, held := c.try(req)
	if held != nil {
		c.p.failf("Acquire of %q, which is free or held by the same owner: %v, token %d, remaining %v", req.Name, held, held.Token, held.Remaining)
	}
	return grant
}

// take is acquire for a new owner.
func (c *peer) take(name string, ttl time.Duration) driver.Grant {
	return c.acquire(c.p.request(name, ttl))
}

// refused demands that the lock is held; because says by which owner.
func (c *peer) refused(name, because string) *driver.HeldError {
	grant, held := c.try(c.p.request(name, c.p.ttl))
	if held == nil {
		c.p.failf("%q was granted (token %d) to a second owner: %s", name, grant.Token, because)
	}
	return held
}

// free demands that name can be acquired at once, and releases it.
func (c *peer) free(name, because string) {
	grant, held := c.try(c.p.request(name, c.p.long))
	if held != nil {
		c.p.failf("%q is not free (%v, token %d, remaining %v): %s", name, held, held.Token, held.Remaining, because)
	}
	c.released(grant)
}

// soon demands the lock within limit and returns when it came.
func (c *peer) soon(req driver.Request, limit time.Duration, because string) (driver.Grant, time.Time) {
	var grant driver.Grant
	var held *driver.HeldError
	var at time.Time
	if !c.p.eventually(limit, func() bool {
		grant, held = c.try(req)
		at = time.Now()
		return held == nil
	}) {
		c.p.failf("%q is still held after %v (%v, token %d, remaining %v): %s",
			req.Name, limit, held, held.Token, held.Remaining, because)
	}
	return grant, at
}

// again demands that the holder gets the same token when it asks again.
func (c *peer) again(req driver.Request, grant driver.Grant) {
	if again := c.acquire(req); again.Token != grant.Token {
		c.p.failf("the owner had token %d and got %d for asking again", grant.Token, again.Token)
	}
}

// afterTTL demands that a grant that was asked for or renewed at sent, and not since, goes to
// another owner within limit, but not before its TTL has passed.
func (c *peer) afterTTL(grant driver.Grant, sent time.Time, limit time.Duration, because string) {
	_, at := c.soon(c.p.request(grant.Name, c.p.ttl), limit, because+", and its TTL is over")
	if kept := at.Sub(sent); kept < grant.TTL {
		c.p.failf("another owner had the lock %v after it was granted or renewed for %v: %s", kept, grant.TTL, because)
	}
}

// released demands that Release succeeds.
func (c *peer) released(grant driver.Grant) {
	if err := c.Release(c.p.ctx, grant); err != nil {
		c.p.failf("Release of %q by its holder: %v", grant.Name, err)
	}
}

// notReleased demands that Release returns ErrNotHeld.
func (c *peer) notReleased(grant driver.Grant, because string) {
	if err := c.Release(c.p.ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Release of %q: want ErrNotHeld (%s), got: %v", grant.Name, because, err)
	}
}

// renewed demands that Renew succeeds.
func (c *peer) renewed(grant driver.Grant, because string) {
	if errs := c.Renew(c.p.ctx, []driver.Grant{grant}); errs != nil {
		c.p.failf("Renew of %q: want nil (%s), got: %v", grant.Name, because, errs)
	}
}

// notRenewed demands that Renew returns ErrNotHeld.
func (c *peer) notRenewed(grant driver.Grant, because string) {
	errs := c.Renew(c.p.ctx, []driver.Grant{grant})
	if len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
		c.p.failf("Renew of %q: want one ErrNotHeld (%s), got: %v", grant.Name, because, errs)
	}
}

// expired waits until a grant that has just arrived has expired, for all contenders too. Its
// TTL began at some time before its arrival.
func (p *probe) expired(grant driver.Grant) {
	p.wait(grant.TTL + p.traits.Granularity + p.slack/4)
}
