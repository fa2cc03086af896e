package dlock

import "context"

// leaseContext is a context that knows the hold it belongs to, which is how
// re-entry finds it, and that doubts before it answers.
type leaseContext struct {
	context.Context
	hold *hold
}

// doContext is a context derived from a lease's, which it lets doubt before it answers.
type doContext struct {
	context.Context
	held context.Context
}

func (c *doContext) Err() error {
	if c.Context.Err() == nil {
		_ = c.held.Err() // which ends this one too
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

func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.hold.doubt()
		// Whoever ended the hold may not have come to ending its context yet.
		if cause := c.hold.over(); cause != nil {
			c.hold.cancelContext(cause)
		}
	}
	return c.Context.Err()
}

// context makes the context when it is first asked for.
func (h *hold) context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(h.caller))
		h.ctx = &leaseContext{inner, h}
		if h.cause != nil {
			cancel(h.cause)
		} else {
			h.cancel = cancel
		}
	}
	return h.ctx
}

// innermost returns the hold that ctx comes from, or nil.
func (c *Client) innermost(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{c}).(*hold)
	return h
}
