package main

import "time"

// vigil remembers when the lease will be over, as of the last look. When dlock
// was paused this tells that there is no time left for grace.
type vigil struct {
	lease    lease
	patience patience
	over     time.Duration // by uptime; the lease is not over before
}

func newVigil(l lease, p patience) vigil {
	v := vigil{lease: l, patience: p, over: uptime()}
	v.look()
	return v
}

// look learns of renewals. What it takes until its result is used is left out of
// the lease, so that nothing lives on until its very end.
func (v *vigil) look() {
	now := uptime()
	if remaining := v.lease.Remaining(); remaining > 0 {
		v.over = now + remaining + v.patience.margin - v.patience.beat
	}
}

// graceLeft is how long after a loss the group may live. It is not positive if
// the lease may be over.
func (v *vigil) graceLeft() time.Duration {
	return min(v.patience.grace, v.over-uptime())
}
