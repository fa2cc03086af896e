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

const (
	// A turn is so many hand-overs long at first that these do not take most of the
	// time, and no longer than others should have to wait for it.
	handoversLong = 20
	shortestTurn  = 7 * time.Millisecond
	usualTurn     = 10 * time.Millisecond // where the store does not say how long they take
	longTurn      = 20 * time.Millisecond
	// maxTurn is for a process that is alone.
	maxTurn  = 250 * time.Millisecond
	courtesy = 3 * time.Millisecond // in which a process that was woken can ask
	// maxPassing is for how long others cannot even try their luck.
	maxPassing = 50 * time.Millisecond
)

// turnOf is how long a turn is at first on a store with such hand-overs.
func turnOf(handover time.Duration) time.Duration {
	if handover <= 0 {
		return usualTurn
	}
	return min(max(handoversLong*handover, shortestTurn), longTurn)
}

// over says whether it is time to let others have the lock.
func (t *turn) over(now clock.Instant, least time.Duration) bool {
	if now-t.left > courtesy { // they could have had it
		t.began = 0
	}
	return t.began != 0 && now-t.began >= max(t.length, least)
}

// taken: this process has the lock.
func (t *turn) taken(now clock.Instant, least time.Duration) {
	if t.yielded { // for nothing, unless others were quick
		if t.rivals.none() {
			t.length = min(2*max(t.length, least), maxTurn)
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
	if t.began == 0 || !w.hold.settings.waits() || !t.over(w.client.clock.NoLaterThanNow(), w.client.turn) {
		return nil
	}
	t.yielded = true
	pause := courtesy
	if !t.rivals.none() {
		pause = w.client.way // they are there and need no more
	}
	return w.sleep(backoff.Jitter(pause), nil)
}
