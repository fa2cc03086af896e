package quorum

import (
	"sync"
	"time"
)

// forecast guesses a token that is larger than what any member would choose for
// itself. If it is right, all members choose that one, and a lock takes one round
// trip. Nothing but speed depends on it.
//
// Members whose tokens come from their clocks count microseconds. So the guess is
// the largest token that was seen, plus the microseconds since the call was sent
// that brought it. The way to the member is in the token and not in that time, which
// makes the guess run ahead of the members' clocks by the longest way so far, and
// by no more.
type forecast struct {
	mu    sync.Mutex
	token uint64
	sent  time.Time
}

// at is the guess for a call that is sent then; zero while nothing is known.
func (f *forecast) at(then time.Time) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.guess(then)
}

func (f *forecast) guess(then time.Time) uint64 {
	if f.token == 0 {
		return 0
	}
	return f.token + uint64(max(0, then.Sub(f.sent).Microseconds()))
}

// saw learns from a token that a call that was sent then brought.
func (f *forecast) saw(token uint64, then time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token > f.guess(then) {
		f.token, f.sent = token, then
	}
}
