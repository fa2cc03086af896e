package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSuspendedTimeCounts(t *testing.T) {
	slept := 7 * time.Hour // before the clock started: does not count
	c := newClock(func() time.Duration { return slept })
	before := c.Now()
	slept += time.Hour
	if early := c.NoLaterThanNow() - before; early >= time.Hour {
		t.Errorf("NoLaterThanNow moved by %v without a look at the suspended time", early)
	}
	if passed := c.Now() - before; passed < time.Hour || passed > time.Hour+time.Minute {
		t.Errorf("after an hour of sleep Now moved by %v", passed)
	}
	if late, now := c.NoLaterThanNow(), c.Now(); late > now || now-late > time.Minute {
		t.Errorf("NoLaterThanNow = %v, Now = %v: want it equal or a little before", late, now)
	}
}

// After a long sleep the first lease does not begin before the sleep.
func TestSleepIsNoticedByTheCheapReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		c := newClock(func() time.Duration { return slept })
		before := c.Now()
		time.Sleep(time.Second) // awake and idle
		slept = time.Hour
		if passed := c.NoLaterThanNow() - before; passed != time.Hour+time.Second {
			t.Errorf("NoLaterThanNow moved by %v", passed)
		}
	})
}

func TestNeverBackwards(t *testing.T) {
	slept := time.Hour
	c := newClock(func() time.Duration { return slept })
	slept += time.Hour
	before := c.Now()
	slept -= time.Minute
	if after := c.Now(); after < before {
		t.Errorf("Now went from %v back to %v", before, after)
	}
}

func TestFollowsVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		before := c.Now()
		time.Sleep(time.Hour)
		if passed := c.Now() - before; passed != time.Hour {
			t.Errorf("an hour of virtual time counted as %v", passed)
		}
	})
}
