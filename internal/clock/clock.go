// Package clock measures elapsed time for leases, on a clock that cannot be set and
// that counts the time in which the machine was suspended. Go's own monotonic clock
// leaves that time out (golang/go#24595).
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is a moment, as the time since an arbitrary but fixed one. Instants
// of one Clock can be compared; their difference is a duration.
type Instant = time.Duration

const (
	// noise is by how much two readings of the suspended time may differ although the
	// machine was not suspended.
	noise = 10 * time.Millisecond
	// fresh is how long NoLaterThanNow relies on the last measurement.
	fresh = 100 * time.Millisecond
)

// Clock returns instants. It follows the virtual time of testing/synctest.
type Clock struct {
	start      time.Time
	total      func() time.Duration // total time for which the machine was suspended
	base       time.Duration        // total() at start
	boottime   func() time.Duration // a clock that includes suspension, read in one call; nil if there is none
	booted     time.Duration        // boottime() at start, or a little before
	suspended  atomic.Int64         // suspended time since start, as last measured
	measuredAt atomic.Int64         // when it was last known to be exact, without the suspended time
}

// New returns a clock that starts now.
func New() *Clock { return newClock(suspended, boottime) }

// NewSuspending returns a clock for tests, whose machine was suspended for as long as
// suspended returns.
func NewSuspending(suspended func() time.Duration) *Clock { return newClock(suspended, nil) }

func newClock(suspended, boottime func() time.Duration) *Clock {
	c := &Clock{start: time.Now(), total: suspended, base: suspended(), boottime: boottime}
	if boottime != nil {
		c.booted = boottime() - time.Since(c.start) - (suspended() - c.base)
	}
	return c
}

// Now returns the exact instant.
func (c *Clock) Now() Instant {
	awake := time.Since(c.start)
	suspended := c.suspended.Load()
	if c.boottime == nil || c.boottime()-c.booted-awake > time.Duration(suspended)+noise {
		// The machine was suspended, or this thread was interrupted between the readings.
		suspended = c.measure()
		awake = time.Since(c.start)
	}
	c.measuredAt.Store(int64(awake))
	return awake + time.Duration(suspended)
}

// measure returns for how long the machine was suspended since start. The result
// never decreases.
func (c *Clock) measure() int64 {
	measured := int64(c.total() - c.base)
	for {
		last := c.suspended.Load()
		if measured < last+int64(noise) {
			return last
		}
		if c.suspended.CompareAndSwap(last, measured) {
			return measured
		}
	}
}

// NoLaterThanNow returns an instant that is before the exact one if the machine was
// suspended within the last tenth of a second that it was awake. It costs a
// fraction of Now. It is right for the start of a lease, which may be counted too
// early but never too late.
func (c *Clock) NoLaterThanNow() Instant {
	awake := time.Since(c.start)
	if awake-time.Duration(c.measuredAt.Load()) > fresh {
		return c.Now()
	}
	return awake + time.Duration(c.suspended.Load())
}
