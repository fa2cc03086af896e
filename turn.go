package dlock

import (
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// turn keeps a busy process from starving others. Goroutines of one process hand
// a lock to each other, or take it again, faster than any other process can ask
// for it, so now and then the next of them pauses first. Whether others want the
// lock is not known here; it shows when the pause ends. If nobody took it, the
// turns get longer, so that a process that is alone hardly ever pauses.
type turn struct {
	began   clock.Instant // since when this process has had the lock in a row; zero if not
	left    clock.Instant // when it last gave it back
	length  time.Duration // of a turn
	yielded bool          // a pause was made, and how it ended is not known yet
	rivals  rivals
}

// maxPassing is for how long others cannot even try their luck.
const maxPassing = 50 * time.Millisecond

// rhythm is how long turns are, and what is between them.
type rhythm struct {
	turn    time.Duration // so long at first that handing over does not take most of the time
	longest time.Duration // turn of a process that is alone
	pause   time.Duration // after a turn, in which others that wait can ask
	way     time.Duration // for how long one that is woken lets others ask first; zero if not
}

// rhythmOf is the rhythm of a store with such hand-overs.
func rhythmOf(handover time.Duration) rhythm {
	const (
		ms   = time.Millisecond
		slow = 5 * ms // where nobody is woken: processes look now and then, in any order
	)
	switch {
	case handover <= 0: // it does not say
		return rhythm{turn: 10 * ms, longest: 250 * ms, pause: 3 * ms, way: ms}
	case handover > slow:
		return rhythm{turn: 10 * handover, longest: 80 * handover, pause: handover}
	}
	return rhythm{
		turn:    min(max(20*handover, 7*ms), 20*ms),
		longest: 250 * ms,
		pause:   max(2*handover, 3*ms),
		way:     max(2*handover, ms), // less than a millisecond cannot be slept
	}
}

// over says whether it is time to let others have the lock.
func (t *turn) over(now clock.Instant, r *rhythm) bool {
	if now-t.left > r.pause { // they could have had it
		t.began = 0
	}
	return t.began != 0 && now-t.began >= max(t.length, r.turn)
}

// taken: this process has the lock.
func (t *turn) taken(now clock.Instant, r *rhythm) {
	if t.yielded { // for nothing, unless others were quick
		if t.rivals.none() {
			t.length = min(2*max(t.length, r.turn), r.longest)
		}
		t.began, t.yielded = 0, false
	}
	if t.began == 0 {
		t.began = now
		t.rivals.had()
	}
}

// refused: another process has the lock.
func (t *turn) refused(by driver.Holder) {
	t.rivals.saw(by)
	if t.yielded {
		t.length = 0
	}
	t.began, t.yielded = 0, false
}

// yield pauses if the turn of this process is over.
func (w *wait) yield(t *turn) error {
	r := &w.client.rhythm
	if t.began == 0 || !w.hold.settings.waits() || !t.over(w.client.clock.NoLaterThanNow(), r) {
		return nil
	}
	t.yielded = true
	pause := r.pause
	if r.way != 0 && !t.rivals.none() {
		pause = r.way // they are there, and need no more
	}
	return w.sleep(backoff.Jitter(pause), nil)
}
