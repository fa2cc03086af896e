package contention

import (
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// SlicePolicy is how long time slices are, and the pauses between them.
type SlicePolicy struct {
	slice   time.Duration // long enough that handing over does not take most of the time
	longest time.Duration // slice of a process without contenders; zero if they poll
	pause   time.Duration // after a slice, in which other waiters can try; zero if they poll
	yield   time.Duration // for how long a woken waiter lets others try first; zero if they poll
	polling polling
}

// MayHandOverPermit reports whether a process may hand a permit over that it took at that instant.
// It does so for a time slice, also without contenders.
func (p *SlicePolicy) MayHandOverPermit(now, taken clock.Instant) bool { return now-taken <= p.slice }

const ms = time.Millisecond

// PolicyFor returns the policy for a store with that [driver.Traits.Reaction]. If the store
// has no Watch, interval is the longest time between two attempts of a waiter; otherwise it is
// zero.
func PolicyFor(reaction, interval time.Duration) SlicePolicy {
	const slow = 5 * ms // without notifications: the store polls for its waiters
	switch {
	case interval > 0:
		return SlicePolicy{slice: pollSlice, polling: polling{longest: interval}}
	case reaction > slow:
		return SlicePolicy{slice: pollSlice, polling: polling{longest: 2 * reaction, byStore: true}}
	case reaction <= 0: // unknown
		return SlicePolicy{slice: 10 * ms, longest: 250 * ms, pause: 3 * ms, yield: ms}
	}
	return SlicePolicy{
		slice:   min(max(20*reaction, 7*ms), 40*ms),
		longest: 250 * ms,
		pause:   max(2*reaction, 3*ms),
		yield:   max(2*reaction, ms), // timers cannot sleep for less than a millisecond
	}
}
