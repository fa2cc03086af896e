package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// find looks for name among the holds that a context comes from: h, the one
// around it, and so on. A nil h is around nothing. A hold that was unlocked is
// not one any more; one that was lost is, so that nobody goes on as if nothing
// had happened.
func (h *hold) find(name string) *hold {
	for ; h != nil; h = h.outer {
		if h.name != name {
			continue
		}
		if cause := h.over(); cause == nil || errors.Is(cause, ErrLost) {
			return h
		}
	}
	return nil
}

// reenter counts the hold once more, for whoever has that context.
func (h *hold) reenter(ctx context.Context) (*Lease, error) {
	h.doubt()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return nil, fmt.Errorf("re-entering %q: %w", h.name, h.cause)
	}
	h.count++
	return &Lease{hold: h, again: &reentry{caller: ctx}}, nil
}

// reentry is what a lease that re-entered has for itself: a context in which all that
// is held around it is found, and the values that its caller gave, and not those
// around the hold, which is further out.
type reentry struct {
	caller context.Context

	mu   sync.Mutex
	over bool
	ctx  *reentryContext // made when it is first asked for
	stop func() bool     // ends the waiting for the end of the hold
}

type reentryContext struct {
	context.Context
	cancel context.CancelCauseFunc
	held   context.Context // of the hold
}

// Err doubts as that of the hold does.
func (c *reentryContext) Err() error {
	if c.Context.Err() == nil && c.held.Err() != nil {
		c.cancel(context.Cause(c.held))
	}
	return c.Context.Err()
}

func (r *reentry) context(h *hold) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil {
		return r.ctx
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(r.caller))
	held := h.context()
	r.ctx = &reentryContext{inner, cancel, held}
	if r.over {
		cancel(ErrReleased)
	} else {
		r.stop = context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}
	return r.ctx
}

// end ends the context, which a hold that goes on would keep otherwise.
func (r *reentry) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.ctx != nil {
		r.stop()
		_ = r.ctx.Err() // if the lock was lost, that is why it ends
		r.ctx.cancel(ErrReleased)
	}
}
