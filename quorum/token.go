package quorum

import (
	"sync"
	"time"
)

// forecast guesses a token that is larger than what any member would choose for
// itself. If it is right, all members choose that one, and a lock takes one round
// trip. Nothing but speed depends on it while a majority keeps its data. Where
// too many members forgot theirs, tokens rise by the members' clocks alone, and a
// guess that is ahead of those is ahead of the next token too: so it must not be
// ahead by more than the time in which a member can crash and come back.
//
// Members whose tokens come from their clocks count microseconds. So the guess is
// the largest token that was seen, plus the microseconds since the call was sent
// that brought it. The way to the member is in the token and not in that time, which
// makes the guess run ahead of the members' clocks by the longest way so far;
// ways that took longer than maxLead do not count.
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

// maxLead limits by how much the guess is ahead of the members' clocks.
const maxLead = 10 * time.Millisecond

// saw learns from a token that a call that was sent then has just brought.
func (f *forecast) saw(token uint64, then time.Time) {
	if late := time.Since(then) - maxLead; late > 0 {
		then = then.Add(late)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token > f.guess(then) {
		f.token, f.sent = token, then
	}
}
