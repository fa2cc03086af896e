package notify

import (
	"errors"
	"testing"
	"time"
)

// paced runs a schedule for a while, with polls that take cost and find what seen returns
// for that time, and returns how many there were.
func paced(schedule *serverSchedule, lasts, cost time.Duration, seen func(at time.Duration) Result) (polls int) {
	start := time.Now()
	schedule.next = start
	for {
		now := schedule.Due()
		if now.Sub(start) > lasts {
			return polls
		}
		polls++
		schedule.Polled(now, now.Add(cost), seen(now.Sub(start)), nil)
	}
}

func still(time.Duration) Result { return Result{} }

func moving(time.Duration) Result { return Result{Moving: true} }

func among(processes int) func(time.Duration) Result {
	return func(time.Duration) Result { return Result{Moving: true, Processes: processes} }
}

func TestServerSchedule(t *testing.T) {
	const second = time.Second
	notified := func() bool { return true }
	for _, test := range []struct {
		what     string
		schedule serverSchedule
		cost     time.Duration
		seen     func(time.Duration) Result
		min, max int // polls in ten seconds
	}{
		{"nothing moves", serverSchedule{gap: MinInterval}, time.Millisecond, still, 95, 110},
		{"locks change hands", serverSchedule{}, 0, moving, 4000, 5001},
		{"four processes wait", serverSchedule{}, 0, among(4), 4000, 5001},
		{"64 processes wait", serverSchedule{}, 0, among(64), 300, 314},
		{"so many are counted that no server serves them", serverSchedule{}, 0, among(100_000), 300, 314},
		{"polls are slow", serverSchedule{}, 50 * time.Millisecond, moving, 90, 101},
		{"the server notifies", serverSchedule{notified: notified}, time.Millisecond, still, 9, 11},
		{"the server notifies of what moves", serverSchedule{notified: notified}, time.Millisecond, moving, 9, 11},
		{"one expires every 50 ms", serverSchedule{notified: notified}, 0, func(time.Duration) Result { return Result{Expiry: 50 * time.Millisecond} }, 190, 202},
	} {
		if n := paced(&test.schedule, 10*second, test.cost, test.seen); n < test.min || n > test.max {
			t.Errorf("%s: %d polls in ten seconds, want %d to %d", test.what, n, test.min, test.max)
		}
	}
}

func TestServerScheduleFollowsWhatMoves(t *testing.T) {
	quiet := 5 * time.Second
	n := paced(&serverSchedule{}, 6*time.Second, 0, func(at time.Duration) Result { return Result{Moving: at > quiet} })
	if n < 450 {
		t.Errorf("%d polls, want about 500 in the second in which locks change hands", n)
	}
}

func TestServerScheduleWhenAsked(t *testing.T) {
	start := time.Now()
	p := &serverSchedule{notified: func() bool { return true }}
	p.Polled(start, start.Add(time.Millisecond), Result{}, nil)
	now := start.Add(100 * time.Millisecond)
	p.Asked(now)
	if got := p.Due(); !got.Equal(now) {
		t.Errorf("a caller that asks waits %v for a poll", got.Sub(now))
	}
	p.Polled(now, now.Add(time.Millisecond), Result{Processes: 64}, nil)
	again := now.Add(time.Millisecond)
	p.Asked(again)
	if got := p.Due().Sub(again); got != MinInterval {
		t.Errorf("a poll follows another after %v, want %v", got, MinInterval)
	}
}

// TestServerScheduleAfterAnError: a server that notifies may not answer.
func TestServerScheduleAfterAnError(t *testing.T) {
	start := time.Now()
	p := &serverSchedule{notified: func() bool { return true }}
	p.Polled(start, start, Result{}, errors.New("no answer"))
	if got := p.Due().Sub(start); got != MaxInterval {
		t.Errorf("the next poll is after %v, want %v", got, MaxInterval)
	}
}
