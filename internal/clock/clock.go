// Package clock measures elapsed time for leases: on a clock that nobody can
// set, and that counts the time in which the machine was suspended, which Go's
// own monotonic clock leaves out (golang/go#24595).
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is a moment, as the time since an arbitrary but fixed one. Instants
// of one Clock can be compared; their difference is a duration.
type Instant = time.Duration

// Clock tells instants. It follows the virtual time of testing/synctest.
type Clock struct {
	start     time.Time
	suspended func() time.Duration // total time the machine has slept
	base      time.Duration        // suspended() at start
	boottime  func() time.Duration // a clock that counts it, read in one call; nil if there is none
	booted    time.Duration        // boottime() at start, or a little before
	known     atomic.Int64         // time slept since start, as far as it was looked at
	looked    atomic.Int64         // when that was, without the time slept
}

// noise is what two readings of the suspended time may differ by although the
// machine did not sleep.
const noise = 10 * time.Millisecond

// fresh is for how long NoLaterThanNow relies on the last look.
const fresh = 100 * time.Millisecond

// New returns a clock that starts now.
func New() *Clock { return newClock(suspended, boottime) }

// NewSuspending returns a clock of a machine that has slept for as long as suspended
// returns, for tests of what happens when it wakes up.
func NewSuspending(suspended func() time.Duration) *Clock { return newClock(suspended, nil) }

func newClock(suspended, boottime func() time.Duration) *Clock {
	c := &Clock{start: time.Now(), suspended: suspended, base: suspended(), boottime: boottime}
	if boottime != nil {
		c.booted = boottime() - time.Since(c.start) - (suspended() - c.base)
	}
	return c
}

// Now returns the exact instant.
func (c *Clock) Now() Instant {
	awake := time.Since(c.start)
	known := c.known.Load()
	if c.boottime == nil || c.boottime()-c.booted-awake > time.Duration(known)+noise {
		// It has slept, or this thread was interrupted between the two readings.
		known = c.look()
		awake = time.Since(c.start)
	}
	c.looked.Store(int64(awake))
	return awake + time.Duration(known)
}

// look finds out for how long the machine has slept since start.
func (c *Clock) look() (slept int64) {
	slept = int64(c.suspended() - c.base)
	for {
		known := c.known.Load()
		if slept < known+int64(noise) {
			return known // never backwards
		}
		if c.known.CompareAndSwap(known, slept) {
			return slept
		}
	}
}

// NoLaterThanNow returns an instant that lies before the exact one if the machine
// has slept within the last tenth of a second that it was awake. It costs a
// fraction of Now and is right for the start of a lease, which may be counted too
// early but never too late.
func (c *Clock) NoLaterThanNow() Instant {
	awake := time.Since(c.start)
	if awake-time.Duration(c.looked.Load()) > fresh {
		return c.Now()
	}
	return awake + time.Duration(c.known.Load())
}
