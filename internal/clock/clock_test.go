package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSuspendedTimeCounts(t *testing.T) {
	slept := 7 * time.Hour // before the clock started: not counted
	c := newClock(func() time.Duration { return slept }, nil)
	before := c.Now()
	slept += time.Hour
	if early := c.NoLaterThanNow() - before; early >= time.Hour {
		t.Errorf("NoLaterThanNow moved by %v without measuring the suspended time", early)
	}
	if passed := c.Now() - before; passed < time.Hour || passed > time.Hour+time.Minute {
		t.Errorf("after an hour of sleep Now moved by %v", passed)
	}
	if late, now := c.NoLaterThanNow(), c.Now(); late > now || now-late > time.Minute {
		t.Errorf("NoLaterThanNow = %v, Now = %v: want it equal or a little before", late, now)
	}
}

// After a suspension, the first lease does not begin before it.
func TestNoLaterThanNowNoticesASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		c := newClock(func() time.Duration { return slept }, nil)
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
	c := newClock(func() time.Duration { return slept }, nil)
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

// Now reads one clock while the machine is not suspended, and counts a suspension.
func TestNowReadsOneClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, slept, measured := time.Now(), 7*time.Hour, 0
		c := newClock(func() time.Duration { measured++; return slept }, func() time.Duration { return time.Since(up) + slept })
		measured = 0
		before := c.Now()
		time.Sleep(time.Minute)
		if passed := c.Now() - before; passed != time.Minute || measured != 0 {
			t.Errorf("a minute counted as %v, with %d measurements of the suspended time", passed, measured)
		}
		for range 3 {
			slept += time.Hour
			before = c.Now()
			time.Sleep(time.Minute)
			if passed := c.Now() - before; passed != time.Minute {
				t.Errorf("a minute after a sleep counted as %v", passed)
			}
		}
		if passed := before - c.start.Sub(up); passed != 3*time.Hour+3*time.Minute {
			t.Errorf("three hours of sleep and three minutes counted as %v", passed)
		}
	})
}

// BenchmarkNow measures what a lease pays to check its trust deadline.
func BenchmarkNow(b *testing.B) {
	c := New()
	for b.Loop() {
		c.Now()
	}
}
