package sqlsession

import (
	"context"
	"testing"
	"time"
	"unsafe"
)

// afterStep returns now as the time of day is after it was set forward or back, by whole
// seconds. The monotonic part stays. A time.Time has its seconds above the lowest 30 bits.
func afterStep(now time.Time, step time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(step/time.Second) << 30
	return now
}

// TestStepOfClock: a clock that is set in the middle of a statement neither ends the
// connection, which would lose its locks, nor keeps one that does not answer.
func TestStepOfClock(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		now := time.Now()
		if stepped := afterStep(now, step); stepped.Sub(now) != 0 || stepped.Round(0).Sub(now.Round(0)) != step {
			t.Fatalf("%v after a step of %v is %v", now, step, stepped)
		}
		c := newConn(nil)
		c.answered.Store(elapsed(now))
		_ = c.call(func(context.Context) error {
			if unanswered, unused := c.ages(afterStep(time.Now(), step)); unanswered <= 0 || unanswered > time.Minute || unused < 0 || unused > time.Minute {
				t.Errorf("after a step of %v the statement seems to take %v, and the last one to be %v ago", step, unanswered, unused)
			}
			return nil
		})
	}
}
