package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// find returns the hold of name among h and the holds around it, or nil. It does not
// return a hold that was unlocked. It returns a lost hold until it is unlocked, so that re-entering
// it fails. h may be nil.
func (h *hold) find(name string) *hold {
	for ; h != nil; h = h.outer {
		if h.name == name && !h.wasUnlocked() {
			return h
		}
	}
	return nil
}

func (h *hold) wasUnlocked() bool {
	cause := h.endCause()
	h.mu.Lock()
	defer h.mu.Unlock()
	return cause != nil && (h.leases == 0 || !errors.Is(cause, ErrLost))
}

// reenter adds a lease to the hold. An exclusive hold may be re-entered shared. The opposite is
// an error: the caller would wait for itself.
func (h *hold) reenter(ctx context.Context, mode driver.Mode) (*Lease, error) {
	h.expireIfOverdue()
	cause := h.endCause()
	h.mu.Lock()
	defer h.mu.Unlock()
	stored := h.storedModeLocked()
	switch {
	case cmp.Or(h.cause, cause) != nil:
		return nil, fmt.Errorf("re-entering %q: %w", h.name, cmp.Or(h.cause, cause))
	case stored.Limit != mode.Limit:
		return nil, &driver.ModeError{Name: h.name, Mode: stored}
	case stored.Shared && !mode.Shared:
		return nil, fmt.Errorf("%w: the caller holds %q shared, and has to unlock it before it locks it exclusively", ErrMode, h.name)
	}
	h.leases++
	return &Lease{hold: h, reentry: &reentry{callerCtx: ctx}}, nil
}

// reentry is the part of a lease that re-entered. Its context has the values of its
// own caller, and finds all holds around that caller, not only those around the hold.
type reentry struct {
	callerCtx context.Context

	mu    sync.Mutex
	ended bool
	ctx   *checkedContext // nil until it is asked for
	stop  func() bool     // stops waiting for the end of the hold
}

func (r *reentry) context(h *hold) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil {
		return r.ctx
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(r.callerCtx))
	held := h.context()
	r.ctx = &checkedContext{Context: inner, cancel: cancel, held: []context.Context{held}}
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
