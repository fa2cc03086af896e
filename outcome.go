package dlock

import "sync/atomic"

// outcomeSignal lets callers of a process wait until another caller's attempt was granted or
// refused. It costs one load if no caller waits.
type outcomeSignal struct {
	announcement atomic.Pointer[chan struct{}] // closed by the next announcement; nil while no caller waits
}

// next returns a channel that is closed at the next announcement. The caller checks
// the state again after it has the channel, because an earlier outcome is not announced
// again.
func (o *outcomeSignal) next() <-chan struct{} {
	for {
		if c := o.announcement.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if o.announcement.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// announce wakes the callers that wait: the attempt was granted or refused, or the hold
// has left its slot.
func (o *outcomeSignal) announce() {
	if o.announcement.Load() != nil { // costs less than Swap
		if c := o.announcement.Swap(nil); c != nil {
			close(*c)
		}
	}
}
