package contention

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

func (p *process) pollDelay() time.Duration { return p.PollDelay(p.now, &p.policy) }

// about reports whether got is want with a jitter.
func about(got, want time.Duration) bool { return got >= want*3/4 && got <= want*5/4 }

func TestWaitersOfNotifyingStoresDoNotPoll(t *testing.T) {
	p := newProcess(ms)
	p.refused(holder(1))
	if delay := p.pollDelay(); delay != 0 {
		t.Errorf("polls after %v", delay)
	}
}

// A waiter that sees the lock change hands polls at once, and then less and less often.
func TestPollsFollowTheHandovers(t *testing.T) {
	p := newPolling()
	check := func(want time.Duration) {
		t.Helper()
		if got := p.pollDelay(); !about(got, want) {
			t.Errorf("polls after %v; want about %v", got, want)
		}
	}
	p.Refused(p.now, holder(1), 7)
	check(firstPoll)
	p.now += 100 * ms
	p.Refused(p.now, holder(1), 7)
	check(100 * ms)
	p.Refused(p.now, driver.Holder{}, 0) // unknown
	check(100 * ms)
	p.Refused(p.now, holder(2), 8)
	check(minPoll)
	p.now += 80 * ms
	p.Refused(p.now, holder(2), 8)
	check(10 * ms)
	p.now += time.Hour
	check(time.Second)
}

// If the store polls for its waiters, these poll by themselves only while that is more often.
func TestStorePollsLongHeldLocks(t *testing.T) {
	p := newProcess(30 * ms)
	p.refused(holder(1))
	if p.pollDelay() == 0 {
		t.Error("the waiter leaves a lock that it does not know to the store")
	}
	p.now += 60 * ms
	if delay := p.pollDelay(); delay != 0 {
		t.Errorf("the waiter polls after %v, the store after %v", delay, 60*ms)
	}
}

// The pause of a holder is longer than the time between two polls of a waiter whose turn it
// is, however long it held the lock.
func TestPauseLastsUntilWaitersHavePolled(t *testing.T) {
	for _, p := range []*process{newPolling(), newProcess(30 * ms)} {
		for _, held := range []time.Duration{15 * ms, 100 * ms, time.Second, time.Hour} {
			waiter := *p
			waiter.Refused(waiter.now, holder(1), 1)
			waiter.Refused(waiter.now, holder(1), 2)
			p.hold(held)
			waiter.now = p.now
			delay := waiter.pollDelay()
			if delay == 0 {
				delay = p.policy.polling.longest * 5 / 4 // by the store
			}
			if pause := p.PauseBeforeTaking(p.now, &p.policy); pause <= delay || pause > held/4+pollLatency {
				t.Errorf("a pause of %v after a hold of %v; want between %v and %v", pause, held, delay, held/4+pollLatency)
			}
			p.now += time.Hour
		}
	}
}

func TestProcessWithTheTurnPollsMoreOften(t *testing.T) {
	for name, end := range map[string]func(p *process){
		"all contenders had the lock": func(p *process) { p.Refused(p.now, holder(2), 4) },
		"the lock changed hands often": func(p *process) {
			for token := range uint64(5) {
				p.Refused(p.now, holder(1), 10+token)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolling()
			p.Refused(p.now, holder(1), 1)
			p.Refused(p.now, holder(2), 2)
			p.hold(ms)
			p.Refused(p.now, holder(1), 3)
			if delay := p.pollDelay(); !about(delay, outOfTurn*minPoll) {
				t.Errorf("out of turn, the waiter polls after %v; want about %v", delay, outOfTurn*minPoll)
			}
			if p.yield() == 0 {
				t.Error("out of turn, the waiter does not yield")
			}
			end(p)
			if delay := p.pollDelay(); !about(delay, minPoll) {
				t.Errorf("the waiter polls after %v; want about %v", delay, minPoll)
			}
			if yield := p.yield(); yield != 0 {
				t.Errorf("the waiter yields for %v", yield)
			}
		})
	}
}

// A process without contenders hardly ever pauses, although its pauses are long after long holds.
func TestPausesOfASingleProcessAreRare(t *testing.T) {
	for _, hold := range []time.Duration{ms, 100 * ms, time.Second, 10 * time.Second} {
		p := newPolling()
		var held, paused time.Duration
		for held < 1000*max(hold, ms) {
			p.hold(hold)
			held += hold
			pause := p.PauseBeforeTaking(p.now, &p.policy)
			p.now += pause
			paused += pause
		}
		if paused > held/20 {
			t.Errorf("paused for %v between holds of %v, which took %v", paused, hold, held)
		}
	}
}
