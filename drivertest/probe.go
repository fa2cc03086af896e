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
	*setup
	ctx    context.Context
	clause string

	mu   sync.Mutex
	undo []func(context.Context)
}

// failure ends a check that failed, from any depth of calls.
type failure struct {
	detail string
	slow   bool // the machine may have been too slow to tell
}

// failf ends the clause: the store broke it. If an argument says that the store did not answer
// in time, the check cannot tell.
func (p *probe) failf(format string, args ...any) {
	for _, arg := range args {
		errs, _ := arg.([]error)
		if err, ok := arg.(error); ok {
			errs = []error{err}
		}
		if errors.Is(errors.Join(errs...), driver.ErrUnreachable) {
			p.slowf(format, args...)
		}
	}
	panic(&failure{detail: fmt.Sprintf(format, args...)})
}

// slowf ends a check that cannot tell whether the store or a slow machine is the cause. The
// check starts again with twice the TTL. A store that is the cause fails each time.
func (p *probe) slowf(format string, args ...any) {
	panic(&failure{detail: fmt.Sprintf(format, args...), slow: true})
}

// catch runs f, and returns why it failed, or nil.
func catch(f func()) (failed *failure) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *failure:
			failed = r
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// run returns why the clause failed, or nil.
func (p *probe) run(c *clause) *failure {
	defer p.leave()
	return catch(func() {
		if c.pair != nil {
			c.pair(p, p.open(), p.open())
		} else {
			c.check(p)
		}
	})
}

// before runs f. A failure of f after the deadline counts as slow. Every check that relies on
// a short TTL that has not passed yet belongs into such an f.
func (p *probe) before(deadline time.Time, f func()) {
	if failed := catch(f); failed != nil {
		failed.slow = failed.slow || !time.Now().Before(deadline)
		panic(failed)
	}
}

// leave undoes what the clause did, the last thing first.
func (p *probe) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.cleanup)
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

// holder describes a contender of this run.
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

// eventually demands that ok returns true within limit, and polls until then. complaint says
// what is wrong otherwise. If ok returns true too late, the machine may be slow.
func (p *probe) eventually(limit time.Duration, ok func() bool, complaint func() string) {
	p.pollEvery(p.poll, limit, ok, complaint)
}

func (p *probe) pollEvery(pause, limit time.Duration, ok func() bool, complaint func() string) {
	for start := time.Now(); ; p.wait(pause) {
		waited := time.Since(start) // measured before the call: the last call of ok is after the limit
		switch yes := ok(); {
		case yes && waited <= limit:
			return
		case yes:
			p.slowf("it took %v, the limit is %v: %s", waited, limit, complaint())
		case waited > limit+p.grace:
			p.failf("nothing for %v: %s", waited, complaint())
		}
	}
}

// moments are when clauses interfere with a call. They are close together where the steps of a
// fast store are.
var moments = func() (all []time.Duration) {
	for at := time.Duration(0); at < time.Millisecond; at += 100 * time.Microsecond {
		all = append(all, at)
	}
	for at := time.Millisecond; at < 12*time.Millisecond; at += 500 * time.Microsecond {
		all = append(all, at)
	}
	return all
}()

// receive demands that something arrives from c on time.
func receive[T any](p *probe, c <-chan T, what string) (got T) {
	start := time.Now()
	select {
	case got = <-c:
	case <-time.After(p.onTime + p.grace):
		p.failf("nothing for %v: %s", p.onTime+p.grace, what)
	case <-p.ctx.Done():
		p.failf("not finished within %v", p.limit)
	}
	if took := time.Since(start); took > p.onTime {
		p.slowf("it took %v, the limit is %v: %s", took, p.onTime, what)
	}
	return got
}

// together runs f n times at once. It fails if one of them does, and cannot tell if one of
// them cannot.
func (p *probe) together(n int, f func(i int)) {
	ends := make([]*failure, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { ends[i] = catch(func() { f(i) }) })
	}
	all.Wait()
	var failed *failure
	for _, end := range ends {
		if end != nil && (failed == nil || end.slow && !failed.slow) {
			failed = end
		}
	}
	if failed != nil {
		panic(failed)
	}
}

// peer is a connection to the store, as another machine would have it. Many of its methods
// are named after what the store must do, such as released or notRenewed: they end the clause
// if the store does not.
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

// request asks for name as a new owner.
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
	grant, held := c.attempt(req)
	if held == nil {
		c.releaseAtEnd(req)
	}
	return grant, held
}

// attempt is try for callers that release the lock themselves.
func (c *peer) attempt(req driver.Request) (driver.Grant, *driver.HeldError) {
	grant, err := c.Acquire(c.p.ctx, req)
	if err == nil {
		return grant, nil
	}
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		c.releaseAtEnd(req) // it may have happened
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
func (c *peer) free(name, because string) { c.freeFor(c.p.request(name, c.p.long), because) }

// freeFor is free for a request.
func (c *peer) freeFor(req driver.Request, because string) {
	grant, held := c.try(req)
	if held != nil {
		c.p.failf("%q is not free (%v, token %d, remaining %v): %s", req.Name, held, held.Token, held.Remaining, because)
	}
	c.released(grant)
}

// soon demands the lock on time.
func (c *peer) soon(req driver.Request, because string) driver.Grant {
	return c.within(c.p.onTime, c.p.poll, req, because)
}

// hurry is soon, without pauses that could be noticed.
func (c *peer) hurry(req driver.Request, because string) driver.Grant {
	return c.within(c.p.onTime+3*c.p.slack, 200*time.Microsecond, req, because)
}

// within demands the lock within limit, and asks for it again after each pause.
func (c *peer) within(limit, pause time.Duration, req driver.Request, because string) (grant driver.Grant) {
	var refusal, held *driver.HeldError
	c.p.pollEvery(pause, limit, func() bool {
		if grant, held = c.try(req); held != nil {
			refusal = held
		}
		return held == nil
	}, func() string {
		return fmt.Sprintf("%q was held (%v, token %d, remaining %v): %s", req.Name, refusal, refusal.Token, refusal.Remaining, because)
	})
	return grant
}

// again demands that the holder gets the same token when it asks again.
func (c *peer) again(req driver.Request, grant driver.Grant) {
	if again := c.acquire(req); again.Token != grant.Token {
		c.p.failf("the owner had token %d and got %d for asking again", grant.Token, again.Token)
	}
}

// afterTTL demands that a grant that was asked for or renewed at sent, and not since, goes to
// another owner soon, but not before its TTL has passed.
func (c *peer) afterTTL(grant driver.Grant, sent time.Time, because string) {
	c.soon(c.p.request(grant.Name, c.p.ttl), because+", and its TTL is over")
	if kept := time.Since(sent); kept < grant.TTL {
		c.p.failf("another owner had the lock %v after it was granted or renewed for %v: %s", kept, grant.TTL, because)
	}
}

func (c *peer) released(grant driver.Grant) {
	if err := c.Release(c.p.ctx, grant); err != nil {
		c.p.failf("Release of %q by its holder: %v", grant.Name, err)
	}
}

func (c *peer) notReleased(grant driver.Grant, because string) {
	if err := c.Release(c.p.ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
		c.p.failf("Release of %q: want ErrNotHeld (%s), got: %v", grant.Name, because, err)
	}
}

func (c *peer) renewed(grant driver.Grant, because string) {
	if errs := c.Renew(c.p.ctx, []driver.Grant{grant}); errs != nil {
		c.p.failf("Renew of %q: want nil (%s), got: %v", grant.Name, because, errs)
	}
}

func (c *peer) notRenewed(grant driver.Grant, because string) {
	errs := c.Renew(c.p.ctx, []driver.Grant{grant})
	if len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
		c.p.failf("Renew of %q: want one ErrNotHeld (%s), got: %v", grant.Name, because, errs)
	}
}

// outlast waits until a TTL that began at the latest now has passed, for all contenders too.
func (p *probe) outlast(ttl time.Duration) {
	p.wait(ttl + p.traits.Granularity + p.slack/4)
}

// expired waits until a grant that has just arrived has expired, and until the store has
// noticed that, however slow the machine is: a lock that was granted later goes to another
// owner.
func (c *peer) expired(grant driver.Grant) {
	later := c.take(grant.Name+", later", c.p.ttl)
	c.p.outlast(c.p.ttl)
	c.released(c.soon(c.p.request(later.Name, c.p.long), "it was not renewed"))
}
