package dlock

import "context"

// leaseContext is the context of a hold. Re-entry finds the hold in it, and its Err
// checks the clock.
type leaseContext struct {
	context.Context
	hold *hold
}

// context returns the context of the lease, and makes it when it is first asked for.
func (h *hold) context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(h.callerCtx))
		h.ctx = &leaseContext{inner, h}
		if h.cause != nil {
			cancel(h.cause)
		} else {
			h.cancel = cancel
		}
	}
	return h.ctx
}

func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.hold.expireIfOverdue()
		// The goroutine that ended the hold may not have ended its context yet.
		if cause := c.hold.endCause(); cause != nil {
			c.hold.cancelContext(cause)
		}
	}
	return c.Context.Err()
}

// holdKey finds the innermost hold of a client in a context.
type holdKey struct{ client *Client }

func (c *leaseContext) Value(key any) any {
	if k, ok := key.(holdKey); ok && k.client == c.hold.client {
		return c.hold
	}
	return c.Context.Value(key)
}

// innermost returns the hold that ctx comes from, or nil.
func (c *Client) innermost(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{c}).(*hold)
	return h
}

// checkedContext ends with the first context of several leases. Its Err calls the Err of each.
type checkedContext struct {
	context.Context
	cancel context.CancelCauseFunc
	held   []context.Context
	caller context.Context // of Do, or nil; Context is derived from it
}

func (c *checkedContext) Err() error {
	if c.caller != nil {
		_ = c.caller.Err() // that of a lease reads the clock, and ends Context if the lease has ended
	}
	for _, held := range c.held {
		if c.Context.Err() == nil && held.Err() != nil {
			c.cancel(context.Cause(held))
		}
	}
	return c.Context.Err()
}
