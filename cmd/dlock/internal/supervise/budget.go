package supervise

import "time"

// GraceBudget is how the TTL of a lease is split for the time after a loss.
type GraceBudget struct {
	Margin time.Duration // from the loss to the end of the lease
	Grace  time.Duration // from TERM to KILL
	Poll   time.Duration // how often the remaining time of the lease is read
}

// SplitTTL fits the grace, and a reserve for all else that takes time, into a third of the
// TTL, the largest margin that a lease can have.
func SplitTTL(ttl, grace time.Duration) GraceBudget {
	third := ttl / 3
	reserve := min(time.Second, third/4)
	margin := min(grace+reserve, third)
	return GraceBudget{
		Margin: margin,
		Grace:  margin - reserve,
		Poll:   max(reserve/4, 5*time.Millisecond),
	}
}

// leaseDeadline is the instant, by uptime, before which the lease does not end.
type leaseDeadline struct {
	lease  Lease
	budget GraceBudget
	at     time.Duration
}

func newLeaseDeadline(lease Lease, budget GraceBudget) leaseDeadline {
	d := leaseDeadline{lease, budget, uptime()}
	d.update()
	return d
}

// update reads the remaining time of the lease. The time until the next update is
// subtracted, so that the group never lives until the very end of the lease.
func (d *leaseDeadline) update() {
	now := uptime()
	if remaining := d.lease.Remaining(); remaining > 0 {
		d.at = now + remaining + d.budget.Margin - d.budget.Poll
	}
}

// graceLeft returns how long the group may live after a loss. It is not positive if the
// lease may have ended.
func (d *leaseDeadline) graceLeft() time.Duration {
	return min(d.budget.Grace, d.at-uptime())
}
