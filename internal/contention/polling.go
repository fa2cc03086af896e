package contention

import (
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// polling is how the waiters of a store without notifications poll: often if the lock
// changes hands often, and seldom if it is held for long. A holder knows for how long it
// held the lock, and so it knows how long the pause after its slice has to be. The zero
// value is for a store that notifies.
type polling struct {
	longest time.Duration // time between two polls
	byStore bool          // the store polls that often by itself
}

const (
	pollSlice = 15 * ms
	minPoll   = ms
	firstPoll = 5 * ms // of a waiter that has not seen yet how often the lock changes hands
	// pollsInHold is how many times a waiter polls in the time for which the lock was held.
	pollsInHold = 8
	// outOfTurn is how many times longer a waiter sleeps if it is the turn of others.
	outOfTurn = 8
	// pollLatency is how late a poll may be, and how long it takes.
	pollLatency = 2 * ms
)

func (p *polling) enabled() bool { return p.longest > 0 }

// untilPolled returns how long it takes until every waiter whose turn it is has polled, if
// the lock was held for that long.
func (p *polling) untilPolled(held time.Duration) time.Duration {
	return backoff.MaxJitter(min(pollInterval(held), p.longest)) + pollLatency
}

// pollInterval returns the time between two polls of a waiter whose turn it is.
func pollInterval(held time.Duration) time.Duration { return max(held/pollsInHold, minPoll) }

// holderChanges is what a process has seen of the lock's way from process to process.
type holderChanges struct {
	token uint64        // of the last refusal; zero if there was none
	first clock.Instant // when the process was refused first; zero if it was not
	last  clock.Instant // when the lock changed hands; zero if the process has not seen that
	count int           // since the process had the lock
}

func (h *holderChanges) seen(now clock.Instant, token uint64) {
	if h.first == 0 {
		h.first = now
	}
	if token == 0 || token == h.token {
		return
	}
	if h.token != 0 || h.last != 0 {
		h.last = now
		h.count++
	}
	h.token = token
}

// hasTurn reports whether no contender has waited for longer than this process: each of them
// has had the lock since this process had it, as far as it knows, or the lock has changed
// hands often enough for that.
func (s *State) hasTurn() bool {
	return s.contenders.allServed() || s.changes.count > 2*len(s.contenders)
}

// PollDelay returns how long a waiter sleeps before its next attempt. It is zero if the store
// notifies the waiter, or polls often enough. The process whose turn it is polls most often,
// so that no process starves and the load does not grow with the number of processes as much.
func (s *State) PollDelay(now clock.Instant, p *SlicePolicy) time.Duration {
	if !p.polling.enabled() {
		return 0
	}
	delay := max(now-s.changes.first, firstPoll)
	if last := s.changes.last; last != 0 {
		delay = pollInterval(now - last)
		if !s.hasTurn() {
			delay *= outOfTurn
		}
	}
	if delay >= p.polling.longest {
		if p.polling.byStore {
			return 0
		}
		delay = p.polling.longest
	}
	return backoff.Jitter(delay)
}
