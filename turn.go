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
	// minTurn is so long that handing over is not what takes most of the time.
	minTurn  = 7 * time.Millisecond
	maxTurn  = 250 * time.Millisecond
	courtesy = 3 * time.Millisecond // in which a process that was woken can ask
	// maxPassing is for how long others cannot even try their luck.
	maxPassing = 50 * time.Millisecond
)

// over says whether it is time to let others have the lock.
func (t *turn) over(now clock.Instant) bool {
	if now-t.left > courtesy { // they could have had it
		t.began = 0
	}
	return t.began != 0 && now-t.began >= max(t.length, minTurn)
}

// taken: this process has the lock.
func (t *turn) taken(now clock.Instant) {
	if t.yielded { // for nothing, unless others were quick
		if t.rivals.none() {
			t.length = min(2*max(t.length, minTurn), maxTurn)
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
	if t.began == 0 || !w.hold.settings.waits() || !t.over(w.client.clock.NoLaterThanNow()) {
		return nil
	}
	t.yielded = true
	pause := courtesy
	if !t.rivals.none() {
		pause = w.client.way // they are there and need no more
	}
	return w.sleep(backoff.Jitter(pause), nil)
}
