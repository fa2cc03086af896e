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

func (c *serverClock) read(micros int64) {
	c.last.Store(&reading{micros, time.Now()})
}

// now returns the estimate in microseconds, or zero if there is none.
func (c *serverClock) now() int64 {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	age := time.Since(r.at)
	if age > maxReadingAge {
		return 0
	}
	return r.micros + age.Microseconds()
}

// readText reads the server's clock from a reply.
func (c *serverClock) readText(reply any) {
	text, _ := reply.(string)
	if micros, err := strconv.ParseInt(text, 10, 64); err == nil {
		c.read(micros)
	}
}
