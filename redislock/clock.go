package redislock

import (
	"strconv"
	"sync/atomic"
	"time"
)

// serverClock estimates the server's clock, from what the server last said it
// was. The estimate is the lower limit of the next token: it is not ahead of the
// clock, and behind it by no more than it took to learn it.
//
// Tokens rise without it, by the counter beside the lock. It is for the day when
// the counter is lost or set back.
type serverClock struct{ last atomic.Pointer[reading] }

type reading struct {
	micros int64
	at     time.Time
}

// maxReadingAge is how long a reading is good for. Two clocks drift apart by
// less than a millisecond in that time.
const maxReadingAge = 10 * time.Second

// maxReadingTime is how long an answer may take to be a reading: the estimate is
// behind the clock by no more.
const maxReadingTime = 100 * time.Millisecond

// read takes a reading from the reply to a call that was sent then.
func (c *serverClock) read(reply any, sent time.Time) {
	text, _ := reply.(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	now := time.Now()
	if err == nil && now.Sub(sent) <= maxReadingTime {
		c.last.Store(&reading{micros, now})
	}
}

// now returns the estimate in microseconds, or zero if there is none.
func (c *serverClock) now() int64 {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	now := time.Now()
	age := now.Sub(r.at)
	// While the machine sleeps, the one clock stands still and the other does not.
	slept := now.Round(0).Sub(r.at.Round(0)) - age
	if age > maxReadingAge || slept.Abs() > time.Second {
		return 0
	}
	return r.micros + age.Microseconds()
}
