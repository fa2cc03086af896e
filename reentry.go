package dlock

import (
	"errors"
	"fmt"
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

// reenter counts the hold once more.
func (h *hold) reenter() (*Lease, error) {
	h.doubt()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return nil, fmt.Errorf("re-entering %q: %w", h.name, h.cause)
	}
	h.count++
	return &Lease{hold: h}, nil
}
