package dlock

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/internal/ending"
)

// leaseContext is the context of a tenure, or one that is made of it. Re-entry finds the tenure in it,
// and its Err checks the clock.
type leaseContext struct {
	context.Context
	tenure *tenure
}

// context returns the context of the tenure, and makes it when it is first asked for.
func (t *tenure) context() (context.Context, *ending.Ending) {
	t.grant.mu.Lock()
	defer t.grant.mu.Unlock()
	if t.ctx == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(t.callerCtx))
		t.ctx, t.ending = &leaseContext{inner, t}, ending.New(cancel)
		if cause := t.endCauseLocked(); cause != nil {
			t.ending.End(cause) // no caller has it yet
		}
	}
	return t.ctx, t.ending
}

func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.tenure.grant.expireIfOverdue()
		// The goroutine that ended the tenure may not have ended its context yet.
		if cause := c.tenure.endCause(); cause != nil {
			c.tenure.endContext(cause)
		}
	}
	return c.Context.Err()
}

// tenureKey finds the innermost tenure of a client in a context.
type tenureKey struct{ client *Client }

func (c *leaseContext) Value(key any) any {
	if k, ok := key.(tenureKey); ok && k.client == c.tenure.grant.client {
		return c.tenure
	}
	return c.Context.Value(key)
}

// innermost returns the tenure that ctx comes from, or nil.
func (c *Client) innermost(ctx context.Context) *tenure {
	t, _ := ctx.Value(tenureKey{c}).(*tenure)
	return t
}

// checkedContext ends with the first context of several leases. Its Err calls the Err of each, which
// reads the clock.
type checkedContext struct {
	context.Context
	ending *ending.Ending
	held   []context.Context
	caller context.Context // of Do, or nil; Context is derived from it
	stops  []func()        // each makes it stop to follow a lease
}

// newCheckedContext returns a context with the values of base that ends with the leases.
func newCheckedContext(base context.Context, leases ...*Lease) *checkedContext {
	inner, cancel := context.WithCancelCause(base)
	c := &checkedContext{Context: inner, ending: ending.New(cancel)}
	for _, lease := range leases {
		held, its := lease.contextAndEnding()
		c.held = append(c.held, held)
		c.stops = append(c.stops, its.Follow(c.ending))
	}
	return c
}

// end ends the context, and what follows it. The leases may go on.
func (c *checkedContext) end(cause error) {
	c.unfollow()
	c.ending.End(cause)
}

func (c *checkedContext) unfollow() {
	for _, stop := range c.stops {
		stop()
	}
}

func (c *checkedContext) Err() error {
	if c.caller != nil {
		_ = c.caller.Err() // that of a lease reads the clock, and ends Context if the lease has ended
	}
	for _, held := range c.held {
		if c.Context.Err() == nil && held.Err() != nil {
			c.ending.End(context.Cause(held))
		}
	}
	return c.Context.Err()
}

func (l *Lease) contextAndEnding() (context.Context, *ending.Ending) {
	if l.reentry != nil {
		ctx := l.reentry.context(l.tenure)
		return ctx, ctx.ending
	}
	return l.tenure.context()
}

// reentry is the part of a lease that re-entered. Its context has the values of its own caller, and
// finds all tenures around that caller, not only the tenures around the first lease.
type reentry struct {
	callerCtx context.Context

	mu    sync.Mutex
	ended bool
	ctx   *checkedContext // nil until it is asked for
}

func (r *reentry) context(t *tenure) *checkedContext {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		r.ctx = newCheckedContext(context.WithoutCancel(r.callerCtx), &t.first)
		if r.ended {
			r.ctx.end(ErrReleased)
		}
	}
	return r.ctx
}

// end ends the context. The tenure may go on.
func (r *reentry) end() {
	r.mu.Lock()
	r.ended = true
	ctx := r.ctx
	r.mu.Unlock()
	if ctx != nil {
		_ = ctx.Err() // a loss is the cause, if there was one
		ctx.end(ErrReleased)
	}
}
