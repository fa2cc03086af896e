package notify

import (
	"testing"
	"time"
)

// polls runs a schedule for a while, with polls that take cost each, and returns when the
// polls were made. Changes are notified at the given moments.
func polls(p *fileSchedule, lasts, cost time.Duration, changes ...time.Duration) (at []time.Duration) {
	return pollsAmong(0, p, lasts, cost, changes...)
}

// pollsAmong is polls of one of so many processes.
func pollsAmong(processes int, p *fileSchedule, lasts, cost time.Duration, changes ...time.Duration) (at []time.Duration) {
	start := time.Now()
	now := start
	p.next = start
	for {
		next := p.next
		if len(changes) > 0 && !p.pending && !start.Add(changes[0]).After(next) {
			if change := start.Add(changes[0]); change.After(now) {
				now = change
			}
			changes = changes[1:]
			p.Changed(now)
			continue
		}
		if next.After(now) {
			now = next
		}
		if now.Sub(start) > lasts {
			return at
		}
		at = append(at, now.Sub(start))
		begin := now
		now = now.Add(cost)
		p.Polled(begin, now, Result{Processes: processes}, nil)
	}
}

func TestFileScheduleWhenNothingHappens(t *testing.T) {
	if n := len(polls(&fileSchedule{notified: true}, 10*time.Second, time.Millisecond)); n > 11 {
		t.Errorf("%d polls in 10 s although nothing happened, want one a second", n)
	}
	if n := len(polls(&fileSchedule{}, 10*time.Second, time.Millisecond)); n > 41 {
		t.Errorf("%d polls in 10 s without notifications, want four a second", n)
	}
}

func TestFileScheduleFollowsAChange(t *testing.T) {
	const change = 400 * time.Millisecond
	at := polls(&fileSchedule{notified: true}, 990*time.Millisecond, 50*time.Microsecond, change)
	// However long the commit takes, a poll comes soon after it.
	for _, commit := range []time.Duration{0, 500 * time.Microsecond, 3 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		seen := time.Duration(-1)
		for _, poll := range at {
			if poll >= change+commit {
				seen = poll - change - commit
				break
			}
		}
		if seen < 0 || seen > commit+2*time.Millisecond {
			t.Errorf("a commit %v after the write is seen %v later; polls at %v", commit, seen, at)
		}
	}
	if len(at) > 12 {
		t.Errorf("%d polls for one change: %v", len(at), at)
	}
}

func TestFileScheduleOfABusyDatabase(t *testing.T) {
	var changes []time.Duration
	for ms := range 10_000 {
		changes = append(changes, time.Duration(ms)*time.Millisecond)
	}
	for _, cost := range []time.Duration{20 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond} {
		n := len(polls(&fileSchedule{notified: true}, 10*time.Second, cost, changes...))
		if share := float64(n) * cost.Seconds() / 10; share > 0.12 {
			t.Errorf("polls that take %v take %.0f %% of the time, want a tenth", cost, 100*share)
		}
		if n < 10 {
			t.Errorf("only %d polls that take %v in 10 s of changes", n, cost)
		}
	}
	// Many processes together take a quarter, and each of them still polls.
	const cost, processes = 50 * time.Microsecond, 50
	n := len(pollsAmong(processes, &fileSchedule{notified: true}, 10*time.Second, cost, changes...))
	if share := processes * float64(n) * cost.Seconds() / 10; share > 0.3 || share < 0.2 {
		t.Errorf("the polls of %d processes take %.0f %% of the time, want a quarter", processes, 100*share)
	}
	// A poll that was kept waiting does not delay the others, whatever was counted.
	for _, processes := range []int{0, 50, 5000} {
		p := &fileSchedule{notified: true}
		now := time.Now()
		end := now.Add(time.Minute)
		p.Polled(now, end, Result{Processes: processes}, nil)
		p.Changed(end)
		if wait := p.Due().Sub(end); wait > 150*time.Millisecond {
			t.Errorf("after a poll that took a minute one of %d processes does not poll before %v", processes, wait)
		}
		p.Polled(end, end.Add(cost), Result{Processes: processes}, nil)
		asked := end.Add(cost + time.Second)
		p.Polled(asked, asked.Add(cost), Result{Processes: processes}, nil)
		p.Asked(asked.Add(cost))
		if wait := p.Due().Sub(asked.Add(cost)); wait != minGap {
			t.Errorf("one of %d processes polls %v after a caller asked, want %v", processes, wait, minGap)
		}
	}
}

func TestFileScheduleKeepsExpiries(t *testing.T) {
	p := &fileSchedule{notified: true}
	now := time.Now()
	p.Polled(now, now, Result{Expiry: 40 * time.Millisecond}, nil)
	if wait := p.next.Sub(now); wait != 40*time.Millisecond {
		t.Errorf("the next poll is in %v, want it when a lock expires, in 40 ms", wait)
	}
}
