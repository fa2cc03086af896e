package contention

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// process is a process that competes for a name in virtual time.
type process struct {
	State
	policy SlicePolicy
	now    clock.Instant
}

func newProcess(reaction time.Duration) *process {
	return &process{policy: PolicyFor(reaction, 0), now: time.Hour}
}

// newPolling returns a process on a store without a Watch.
func newPolling() *process { return &process{policy: PolicyFor(0, time.Second), now: time.Hour} }

// hold takes the lock and releases it after d.
func (p *process) hold(d time.Duration) {
	p.Taken(p.now, &p.policy)
	p.now += d
	p.Released(p.now)
}

// holdUntilPause holds the lock for 1 ms again and again until a pause is due, and
// returns for how long and the pause.
func (p *process) holdUntilPause() (slice, pause time.Duration) {
	began := p.now
	for pause == 0 {
		p.hold(ms)
		pause = p.PauseBeforeTaking(p.now, &p.policy)
	}
	slice = p.now - began
	p.now += pause
	return slice, pause
}

func (p *process) refused(by driver.Holder) { p.Refused(p.now, by, 1) }

func (p *process) yield() time.Duration { return p.YieldAfterWake(p.now, &p.policy) }

func holder(pid int) driver.Holder { return driver.Holder{Host: "h", PID: pid} }

func TestPolicies(t *testing.T) {
	for reaction, want := range map[time.Duration]SlicePolicy{
		0:       {10 * ms, 250 * ms, 3 * ms, ms, polling{}},
		ms / 10: {7 * ms, 250 * ms, 3 * ms, ms, polling{}},
		ms:      {20 * ms, 250 * ms, 3 * ms, 2 * ms, polling{}},
		5 * ms:  {40 * ms, 250 * ms, 10 * ms, 10 * ms, polling{}},
		30 * ms: {15 * ms, 0, 0, 0, polling{60 * ms, true}},
	} {
		if got := PolicyFor(reaction, 0); got != want {
			t.Errorf("PolicyFor(%v, 0) = %v; want %v", reaction, got, want)
		}
	}
	want := SlicePolicy{15 * ms, 0, 0, 0, polling{time.Second, false}}
	if got := PolicyFor(0, time.Second); got != want {
		t.Errorf("PolicyFor(0, 1s) = %v; want %v", got, want)
	}
}

func TestBusyProcessPausesAfterItsSlice(t *testing.T) {
	p := newProcess(0)
	slice, pause := p.holdUntilPause()
	if slice != p.policy.slice {
		t.Errorf("paused after %v; want %v", slice, p.policy.slice)
	}
	if pause < p.policy.pause*3/4 || pause > p.policy.pause*5/4 {
		t.Errorf("paused for %v; want about %v", pause, p.policy.pause)
	}
}

func TestSlicesGrowWithoutContenders(t *testing.T) {
	p := newProcess(0)
	for _, want := range []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 250 * ms, 250 * ms} {
		if slice, _ := p.holdUntilPause(); slice != want {
			t.Errorf("a slice of %v; want %v", slice, want)
		}
	}
	p.refused(holder(1)) // the pause was not in vain
	if slice, pause := p.holdUntilPause(); slice != 10*ms || pause > p.policy.yield*5/4 {
		t.Errorf("with a contender a slice of %v and a pause of %v; want %v and about %v", slice, pause, 10*ms, p.policy.yield)
	}
	if slice, _ := p.holdUntilPause(); slice != 10*ms {
		t.Errorf("with a contender the next slice is %v; want %v", slice, 10*ms)
	}
}

// TestPausesThatContendersMissGetLonger: a contender that is slow to try gets more time, unless the
// callers of this process have none.
func TestPausesThatContendersMissGetLonger(t *testing.T) {
	p := newProcess(0)
	yield := p.policy.yield
	check := func(what string, want time.Duration) {
		t.Helper()
		if _, pause := p.holdUntilPause(); pause < want*3/4 || pause > want*5/4 {
			t.Errorf("%s: a pause of %v; want about %v", what, pause, want)
		}
	}
	p.refused(holder(1))
	check("the first", yield)
	check("missed once", 2*yield)
	check("missed twice", 4*yield)
	p.refused(holder(1))
	check("not missed", yield)
	check("missed once again", 2*yield)
	p.hold(ms)
	p.ForgetPause(p.now) // no pause is under way
	check("missed twice again", 4*yield)
	p.ForgetPause(p.now)
	check("not made", yield)
}

// TestPauseGoesOnWithTheNextCaller: a caller that leaves in the middle of a pause leaves the rest of it. A
// pause that was cut short ends with a new slice, and tells nothing about the contenders.
func TestPauseGoesOnWithTheNextCaller(t *testing.T) {
	p := newPolling()
	due := func() time.Duration { return p.PauseBeforeTaking(p.now, &p.policy) }
	p.hold(time.Second)
	whole := due()
	if whole < 100*ms {
		t.Fatalf("a pause of %v after a long hold", whole)
	}
	p.now += whole / 4
	p.ForgetPause(p.now)
	if rest := due(); rest != whole-whole/4 {
		t.Errorf("%v are left of a pause of %v, after %v", rest, whole, whole/4)
	}
	p.ShortenPause(p.now + ms)
	if rest := due(); rest != ms {
		t.Errorf("%v are left of a pause that was cut to %v", rest, ms)
	}
	p.now += ms
	if rest := due(); rest != 0 {
		t.Errorf("%v are left of a pause that is over", rest)
	}
	p.hold(ms)
	if p.length != 0 {
		t.Errorf("a pause that was cut short made the slice %v long", p.length)
	}
	if pause := due(); pause != 0 {
		t.Errorf("a pause of %v at the begin of a slice", pause)
	}
}

// TestOutcomeOfAPauseOfTwoCallers: a pause that one caller began and another one finished in vain makes the
// slice longer, as every pause does, and ends the slice before it.
func TestOutcomeOfAPauseOfTwoCallers(t *testing.T) {
	p := newPolling()
	due := func() time.Duration { return p.PauseBeforeTaking(p.now, &p.policy) }
	p.hold(time.Second)
	p.now += due() / 4
	p.ForgetPause(p.now)
	p.now += due()
	p.hold(ms)
	if p.length == 0 {
		t.Error("the pause counts for nothing")
	}
	if pause := due(); pause != 0 {
		t.Errorf("a pause of %v at the begin of a slice", pause)
	}
}

func TestIdleTimeEndsTheSlice(t *testing.T) {
	p := newProcess(0)
	for range 100 {
		p.hold(9 * ms)
		p.now += p.policy.pause + 1
		if pause := p.PauseBeforeTaking(p.now, &p.policy); pause != 0 {
			t.Fatalf("a process that left the lock alone for %v pauses for %v", p.policy.pause+1, pause)
		}
	}
}

func TestHandOverEndsWithTheSlice(t *testing.T) {
	p := newProcess(0)
	for _, want := range []time.Duration{10 * ms, 20 * ms, 40 * ms, 51 * ms, 51 * ms} { // 50 ms at most
		p.Taken(p.now, &p.policy)
		began := p.now
		for p.MayHandOver(p.now, &p.policy) {
			p.now += ms
		}
		if got := p.now - began; got != want {
			t.Errorf("handed over for %v; want %v", got, want)
		}
		p.now = began + p.policy.longest // the slice has ended, too
		p.Released(p.now)
		p.now += p.PauseBeforeTaking(p.now, &p.policy)
	}
}

func TestFirstTimeWaiterDoesNotYield(t *testing.T) {
	p := newProcess(0)
	for pid := range 100 {
		p.refused(holder(pid % 3))
		if yield := p.yield(); yield != 0 {
			t.Fatalf("a waiter that never had the lock yields for %v", yield)
		}
	}
}

func TestWaiterYieldsToContendersThatHadNoTurn(t *testing.T) {
	p := newProcess(0)
	p.refused(holder(1))
	p.refused(holder(2))
	p.hold(ms)
	for range 100 {
		if p.yield() == 0 {
			t.Fatal("the waiter does not yield, although two contenders had no turn")
		}
		p.refused(driver.Holder{Host: "h", PID: 1, Note: "notes differ"})
	}
	p.refused(holder(2))
	p.now += recent
	if yield := p.yield(); yield != 0 {
		t.Errorf("the waiter yields for %v, although all contenders had a turn", yield)
	}
}

func TestRecentHolderYieldsToUnseenProcesses(t *testing.T) {
	p := newProcess(0)
	p.hold(ms)
	yields, tries := 0, 16_000
	for range tries {
		if p.yield() != 0 {
			yields++
		}
	}
	if yields < tries/yieldToUnseen/2 || yields > tries/yieldToUnseen*2 {
		t.Errorf("%d of %d wake-ups yield; want about one in %d", yields, tries, yieldToUnseen)
	}
}

func TestContenderThatLeftIsForgotten(t *testing.T) {
	p := newProcess(0)
	p.refused(holder(1))
	for range maxMissed + 1 {
		if len(p.contenders) == 0 {
			t.Fatal("forgotten too early")
		}
		p.hold(ms)
		p.now += time.Second // a new slice
		p.PauseBeforeTaking(p.now, &p.policy)
	}
	if len(p.contenders) != 0 {
		t.Errorf("still known after %d missed turns", maxMissed)
	}
}

func TestContendersAreLimited(t *testing.T) {
	p := newProcess(0)
	for pid := range 10 * maxContenders {
		p.refused(holder(pid))
		p.refused(driver.Holder{Note: fmt.Sprint(pid)}) // unnamed processes count as one
	}
	if n := len(p.contenders); n != maxContenders {
		t.Errorf("%d contenders are known; want %d", n, maxContenders)
	}
}

func TestOutage(t *testing.T) {
	const ttl = 30 * time.Second
	down := errors.New("down")
	var s State
	check := func(what string, now clock.Instant, want error) {
		t.Helper()
		if err := s.OutageTooLong(now, ttl); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", what, err, want)
		}
	}
	check("no call yet", 1, nil)
	s.Unanswered(1, down)
	check("never answered", 1, down)
	s.Refused(1, holder(1), 1)
	check("answered", 1, nil)
	s.Unanswered(2, errors.New("first"))
	s.Unanswered(ttl, down)
	check("shorter than a TTL", ttl+1, nil)
	check("as long as a TTL", ttl+2, down)
	s.Answered(ttl + 3)
	check("answers again", 2*ttl, nil)
	s.Unanswered(2*ttl, down)
	if s.Answers() || !s.AnsweredAfter(ttl+2) || s.AnsweredAfter(ttl+3) {
		t.Error("in an outage, the state does not know when the store answered last")
	}
	s.ForgetOutage()
	check("forgotten", 4*ttl, nil)
	s.Unanswered(4*ttl, down)
	check("has not answered since", 4*ttl, down)
}
