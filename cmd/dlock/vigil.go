package main

import (
	"context"
	"time"
)

// vigil remembers when the lock was last known to be held, which bounds the end
// of the lease from below: a lease that is held lasts for the margin at least.
// When dlock was paused this tells that there is no time left for grace.
type vigil struct {
	held     context.Context
	patience patience
	trusted  time.Duration // the lock was held then
}

func newVigil(held context.Context, p patience) vigil {
	return vigil{held: held, patience: p, trusted: uptime()}
}

// note looks whether the lock is held. The context of a lease looks at the clock
// itself, so that a pause cannot go unnoticed in between.
func (v *vigil) note() {
	now := uptime()
	if v.held.Err() == nil {
		v.trusted = now
	}
}

// graceLeft is how long after a loss the group may live. It is not positive if
// the lease may be over.
func (v *vigil) graceLeft() time.Duration {
	untilEnd := v.trusted + v.patience.margin - v.patience.beat - uptime()
	return min(v.patience.grace, untilEnd)
}
