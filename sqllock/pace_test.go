package sqllock

import (
	"testing"
	"time"
)

// looks runs pace for a while, with a look that takes cost each time, and
// returns when the looks were made. changes are told at the given moments.
func looks(p *pace, lasts, cost time.Duration, changes ...time.Duration) (at []time.Duration) {
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
			p.changed(now)
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
		p.looked(begin, now, sight{}, nil)
	}
}

func TestPaceWhenNothingHappens(t *testing.T) {
	if n := len(looks(&pace{told: true}, 10*time.Second, time.Millisecond)); n > 11 {
		t.Errorf("%d looks in 10 s although nothing happened, want one a second", n)
	}
	if n := len(looks(&pace{}, 10*time.Second, time.Millisecond)); n > 41 {
		t.Errorf("%d looks in 10 s without being told of changes, want four a second", n)
	}
}

func TestPaceFollowsAChange(t *testing.T) {
	const change = 400 * time.Millisecond
	at := looks(&pace{told: true}, 990*time.Millisecond, 50*time.Microsecond, change)
	// However long the commit takes, a look comes soon after it.
	for _, commit := range []time.Duration{0, 500 * time.Microsecond, 3 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		seen := time.Duration(-1)
		for _, look := range at {
			if look >= change+commit {
				seen = look - change - commit
				break
			}
		}
		if seen < 0 || seen > commit+2*time.Millisecond {
			t.Errorf("a commit %v after the write is seen %v later; looks at %v", commit, seen, at)
		}
	}
	if len(at) > 12 {
		t.Errorf("%d looks for one change: %v", len(at), at)
	}
}

func TestPaceOfABusyDatabase(t *testing.T) {
	var changes []time.Duration
	for ms := range 10_000 {
		changes = append(changes, time.Duration(ms)*time.Millisecond)
	}
	for _, cost := range []time.Duration{20 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond} {
		n := len(looks(&pace{told: true}, 10*time.Second, cost, changes...))
		if share := float64(n) * cost.Seconds() / 10; share > 0.12 {
			t.Errorf("looks that take %v take %.0f %% of the time, want a tenth", cost, 100*share)
		}
		if n < 10 {
			t.Errorf("only %d looks that take %v in 10 s of changes", n, cost)
		}
	}
	// A look that was kept waiting is no reason to let others wait.
	p := &pace{told: true}
	now := time.Now()
	p.looked(now, now.Add(time.Minute), sight{}, nil)
	if wait := p.free.Sub(now.Add(time.Minute)); wait > 150*time.Millisecond {
		t.Errorf("after a look that took a minute the next is not before %v", wait)
	}
}

func TestPaceKeepsExpiries(t *testing.T) {
	p := &pace{told: true}
	now := time.Now()
	p.looked(now, now, sight{expiry: 40 * time.Millisecond}, nil)
	if wait := p.next.Sub(now); wait != 40*time.Millisecond {
		t.Errorf("the next look is in %v, want it when a lock expires, in 40 ms", wait)
	}
}
