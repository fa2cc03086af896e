package dlock

import "fmt"

// find looks for name among the holds that a context comes from: h, the one
// around it, and so on. A nil h is around nothing.
func (h *hold) find(name string) *hold {
	for ; h != nil; h = h.outer {
		if h.name == name {
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
