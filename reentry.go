package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// find returns the hold of name among h and the holds around it, or nil. It does not
// return a hold that Unlock has released. It returns a lost hold, so that re-entering it
// fails.
func (h *hold) find(name string) *hold {
	for ; h != nil; h = h.outer {
		if h.name != name {
			continue
		}
		if cause := h.endCause(); cause == nil || errors.Is(cause, ErrLost) {
			return h
		}
	}
	return nil
}

// reenter adds a lease to the hold.
func (h *hold) reenter(ctx context.Context) (*Lease, error) {
	h.expireIfOverdue()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return nil, fmt.Errorf("re-entering %q: %w", h.name, h.cause)
	}
	h.leases++
	return &Lease{hold: h, reentry: &reentry{caller: ctx}}, nil
}

// reentry is the part of a lease that re-entered. Its context has the values of its
// own caller, and finds all holds around that caller, not only those around the hold.
type reentry struct {
	caller context.Context

	mu    sync.Mutex
	ended bool
	ctx   *derivedContext // nil until it is asked for
	stop  func() bool     // stops waiting for the end of the hold
}

func (r *reentry) context(h *hold) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil {
		return r.ctx
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(r.caller))
	held := h.context()
	r.ctx = &derivedContext{inner, cancel, held}
	if r.ended {
		cancel(ErrReleased)
	} else {
		r.stop = context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}
	return r.ctx
}

// end ends the context. The hold may go on.
func (r *reentry) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.ctx != nil {
		r.stop()
		_ = r.ctx.Err() // a loss is the cause, if there was one
		r.ctx.cancel(ErrReleased)
	}
}
