package alarm_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/alarm"
)

// record runs an alarm and returns after how long it called its function each time.
func record(t *testing.T, set func(a *alarm.Alarm), next func(call int, now time.Time, a *alarm.Alarm) time.Time) (calls []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, start := alarm.New(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go set(a)
		a.Run(ctx, func(now time.Time) time.Time {
			calls = append(calls, now.Sub(start))
			return next(len(calls), now, a)
		})
	})
	return calls
}

func never(int, time.Time, *alarm.Alarm) time.Time { return alarm.Never }

func TestEarliestTimeCounts(t *testing.T) {
	calls := record(t, func(a *alarm.Alarm) {
		now := time.Now()
		for _, s := range []int{5, 3, 9, 4} {
			a.NoLaterThan(now.Add(time.Duration(s) * time.Second))
		}
	}, never)
	if want := []time.Duration{3 * time.Second}; !slices.Equal(calls, want) {
		t.Errorf("called after %v; want %v", calls, want)
	}
}

func TestEarlierTimeWhileItSleeps(t *testing.T) {
	calls := record(t, func(a *alarm.Alarm) {
		now := time.Now()
		a.NoLaterThan(now.Add(time.Minute))
		time.Sleep(time.Second)
		a.NoLaterThan(now.Add(2 * time.Second))
	}, never)
	if want := []time.Duration{2 * time.Second}; !slices.Equal(calls, want) {
		t.Errorf("called after %v; want %v", calls, want)
	}
}

func TestNextTimeThatTheFunctionReturns(t *testing.T) {
	calls := record(t, func(a *alarm.Alarm) { a.NoLaterThan(time.Now()) },
		func(call int, now time.Time, _ *alarm.Alarm) time.Time {
			if call == 3 {
				return alarm.Never
			}
			return now.Add(time.Minute)
		})
	if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(calls, want) {
		t.Errorf("called after %v; want %v", calls, want)
	}
}

// TestTimeSetDuringACall: a time that is set while the function runs is not forgotten,
// whatever the function returns.
func TestTimeSetDuringACall(t *testing.T) {
	calls := record(t, func(a *alarm.Alarm) { a.NoLaterThan(time.Now()) },
		func(call int, now time.Time, a *alarm.Alarm) time.Time {
			if call == 1 {
				a.NoLaterThan(now.Add(time.Second))
			}
			return alarm.Never
		})
	if want := []time.Duration{0, time.Second}; !slices.Equal(calls, want) {
		t.Errorf("called after %v; want %v", calls, want)
	}
}

func TestNothingIsDue(t *testing.T) {
	if calls := record(t, func(*alarm.Alarm) {}, never); calls != nil {
		t.Errorf("called after %v although no time was set", calls)
	}
}
