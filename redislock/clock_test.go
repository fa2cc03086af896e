package redislock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestServerClockEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		if now := c.now(); now != 0 {
			t.Errorf("%d before the first reading; want 0", now)
		}
		c.read("1000000", time.Now())
		time.Sleep(3 * time.Second)
		if now := c.now(); now != 4000000 {
			t.Errorf("%d three seconds after a reading of 1000000; want 4000000", now)
		}
		time.Sleep(maxReadingAge)
		if now := c.now(); now != 0 {
			t.Errorf("%d from a reading that is too old; want 0", now)
		}
		c.read("not a number", time.Now())
		c.read(nil, time.Now())
		c.read("1000000", time.Now().Add(-maxReadingTime-1))
		if now := c.now(); now != 0 {
			t.Errorf("%d after replies that are no readings; want 0", now)
		}
	})
}
