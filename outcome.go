package dlock

import "sync/atomic"

// outcome lets callers of a process wait until another caller's attempt was granted or
// refused. It costs one load if no caller waits.
type outcome struct {
	waited atomic.Pointer[chan struct{}] // nil while no caller waits
}

// wait returns a channel that is closed at the next announcement. The caller checks
// the state again after it has the channel, because an earlier outcome is not announced
// again.
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

// announce wakes the callers that wait: the attempt was granted or refused, or the hold
// has left its slot.
func (o *outcome) announce() {
	if o.waited.Load() != nil { // costs less than Swap
		if c := o.waited.Swap(nil); c != nil {
			close(*c)
		}
	}
}
