package dlock

import "sync/atomic"

// outcome lets callers of a process wait until it is known whether another
// caller's attempt got the lock. It costs one load where no caller waits.
type outcome struct {
	waited atomic.Pointer[chan struct{}] // nil while no caller waits
}

// wait returns a channel that is closed when the outcome is decided. A caller
// checks the state again after it has the channel: what was decided before is
// not announced.
func (o *outcome) wait() <-chan struct{} {
	for {
		if c := o.waited.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if o.waited.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// decided announces that the lock was acquired or refused, or that the hold has
// left the slot.
func (o *outcome) decided() {
	if o.waited.Load() == nil {
		return
	}
	if c := o.waited.Swap(nil); c != nil {
		close(*c)
	}
}
