package contention

import "time"

// SlicePolicy is how long time slices are, and the pauses between them.
type SlicePolicy struct {
	slice   time.Duration // long enough that handing over does not take most of the time
	longest time.Duration // slice of a process without contenders
	pause   time.Duration // after a slice, in which other waiters can try
	yield   time.Duration // for how long a woken waiter lets others try first; zero if it does not
}

// PolicyFor returns the policy for a store with that [driver.Traits.Reaction].
func PolicyFor(reaction time.Duration) SlicePolicy {
	const (
		ms   = time.Millisecond
		slow = 5 * ms // without notifications: waiters poll, in any order
	)
	switch {
	case reaction <= 0: // unknown
		return SlicePolicy{slice: 10 * ms, longest: 250 * ms, pause: 3 * ms, yield: ms}
	case reaction > slow:
		return SlicePolicy{slice: 10 * reaction, longest: 80 * reaction, pause: reaction}
	}
	return SlicePolicy{
		slice:   min(max(20*reaction, 7*ms), 20*ms),
		longest: 250 * ms,
		pause:   max(2*reaction, 3*ms),
		yield:   max(2*reaction, ms), // timers cannot sleep for less than a millisecond
	}
}
