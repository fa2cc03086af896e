package redislock

import (
	"strconv"
	"sync/atomic"
	"time"
)

// serverClock estimates the server's clock from its last reading. The estimate is never ahead of
// the clock, and behind it by no more than the reading took. It is a lower bound for the next
// token, in case that the counter beside the lock is lost or set back.
type serverClock struct{ last atomic.Pointer[reading] }

type reading struct {
	micros int64
	at     time.Time
}

const (
	maxReadingAge  = 10 * time.Second       // two clocks drift apart by less than a millisecond in it
	maxReadingTime = 100 * time.Millisecond // how long the call of a reading may take
)

// read takes a reading from the reply to a call that was sent at that time.
func (c *serverClock) read(reply any, sent time.Time) {
	text, _ := reply.(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	now := time.Now()
	if err == nil && now.Sub(sent) <= maxReadingTime {
		c.last.Store(&reading{micros, now})
	}
}

// now returns the estimate in microseconds, or zero without a usable reading.
func (c *serverClock) now() int64 {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	now := time.Now()
	age := now.Sub(r.at)
	// While the machine is suspended, the monotonic clock stops and the wall clock does not.
	suspended := now.Round(0).Sub(r.at.Round(0)) - age
	if age > maxReadingAge || suspended.Abs() > time.Second {
		return 0
	}
	return r.micros + age.Microseconds()
}
