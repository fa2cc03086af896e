package contention

import (
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// timeslice keeps a busy process from starving others. Goroutines of one process
// hand a lock over, or take it again, faster than any other process can ask for it.
// So at the end of a time slice the next of them pauses. Only the end of the pause
// shows whether other processes want the lock. If none took it, the slices get
// longer, so that a process without contenders hardly ever pauses.
type timeslice struct {
	began    clock.Instant // when this process took the lock first in this slice; zero outside of one
	released clock.Instant // when it last released the lock or handed it over
	length   time.Duration // of the slice; zero stands for SlicePolicy.slice
	paused   bool          // a pause was made, and no outcome is known yet
}

// maxHandOver limits the time in which other processes cannot even try.
const maxHandOver = 50 * time.Millisecond

// SlicePolicy is how long time slices are, and the pauses between them.
type SlicePolicy struct {
	slice   time.Duration // long enough that handing over does not take most of the time
	longest time.Duration // slice of a process without contenders
	pause   time.Duration // after a slice, in which other waiters can try
	yield   time.Duration // for how long a woken waiter lets others try first; zero if it does not
}

// PolicyFor returns the policy for a store with that [driver.Traits.Handover].
func PolicyFor(handover time.Duration) SlicePolicy {
	const (
		ms   = time.Millisecond
		slow = 5 * ms // without notifications: waiters poll, in any order
	)
	switch {
	case handover <= 0: // unknown
		return SlicePolicy{slice: 10 * ms, longest: 250 * ms, pause: 3 * ms, yield: ms}
	case handover > slow:
		return SlicePolicy{slice: 10 * handover, longest: 80 * handover, pause: handover}
	}
	return SlicePolicy{
		slice:   min(max(20*handover, 7*ms), 20*ms),
		longest: 250 * ms,
		pause:   max(2*handover, 3*ms),
		yield:   max(2*handover, ms), // timers cannot sleep for less than a millisecond
	}
}

// ended reports whether the slice is used up.
func (t *timeslice) ended(now clock.Instant, p *SlicePolicy) bool {
	return t.began != 0 && now-t.began >= max(t.length, p.slice)
}

// pausesAt reports whether the next caller has to pause, and records the pause.
func (t *timeslice) pausesAt(now clock.Instant, p *SlicePolicy) bool {
	if now-t.released > p.pause { // other processes had time to take the lock
		t.began = 0
	}
	if t.ended(now, p) {
		t.paused = true
		return true
	}
	return false
}

// taken records that this process has the lock, and reports whether a new slice
// begins.
func (t *timeslice) taken(now clock.Instant, p *SlicePolicy, contended bool) (begins bool) {
	if t.paused {
		if !contended { // the pause was in vain
			t.length = min(2*max(t.length, p.slice), p.longest)
		}
		t.began, t.paused = 0, false
	}
	if t.began == 0 {
		t.began, begins = now, true
	}
	return begins
}

// refused records that another process has the lock.
func (t *timeslice) refused() {
	if t.paused {
		t.length = 0
	}
	t.began, t.paused = 0, false
}
